"""The intended load over time as locust counts it: so many users are so many requests per second.

A user here is one request per second of intended rate. It is no closed loop: nobody waits for an answer before the
next request, and a slow server is asked as often as a quick one. In a closed loop it is one open request.
"""

from collections.abc import Sequence

from toolkit.core.plan import Plan
from workloads.profile import Profile
from workloads.shape import Stretch


def users_at(stretches: Sequence[Stretch], elapsed_s: float) -> int | None:
    """The intended rate, requests/s, rounded half up and at least 1 while there is any; None after the last stretch.

    Before the first stretch and between two: 0.
    """
    for stretch in stretches:
        if elapsed_s < stretch.begin_s:
            return 0
        if elapsed_s < stretch.end_s:
            return max(1, int(stretch.rate + 0.5)) if stretch.rate > 0 else 0
    return None


def stretches_of(profile: Profile, plan: Plan) -> tuple[Stretch, ...]:
    """The profile's stretches; where the plan has times of its own (a trace, a recording), its mean rate.

    A closed loop is one stretch of as many users as requests are open.
    """
    if plan.concurrency:
        return (Stretch("", 0.0, plan.duration_s, float(plan.concurrency)),)
    if profile.trace is not None or (profile.plan and not profile.phases):
        return (Stretch("", 0.0, plan.duration_s, len(plan.requests) / plan.duration_s),)
    return profile.stretches()
