"""What load a profile offers, in a few words: a report's headline must not name a rate that nobody asked for."""

from toolkit.core.plan import Plan
from workloads.profile import Profile


def offer_of(profile: Profile, plan: Plan) -> str:
    """As "poisson arrivals at 2/s" or "trace azure-2023-code x2, 12.3/s in the mean". Means are of the plan."""
    mean = f"{len(plan.requests) / plan.duration_s:.3g}/s in the mean"
    if plan.concurrency:
        return f"closed loop of {plan.concurrency}"
    if profile.plan:
        return f"recorded plan, {mean}"
    if profile.trace is not None:
        speed = "" if profile.trace.speed == 1 else f" x{profile.trace.speed:g}"
        return f"trace {profile.trace.file}{speed}, {mean}"
    if profile.phases:
        return f"{profile.arrival} arrivals, {_phases(profile)}"
    return f"{profile.arrival} arrivals at {profile.rate:g}/s"


def _phases(profile: Profile) -> str:
    shares = [phase.share_of_peak for phase in profile.phases]
    if all(share is not None for share in shares):
        told = "/".join(f"{share * 100:g}" for share in shares if share is not None)
        return f"phases {told} % of a peak of {profile.rate:g}/s"
    return f"phases {'/'.join(f'{stretch.rate:g}' for stretch in profile.stretches())} per second"
