"""From a surge's recorded samples to its verdict, and the verdict as text and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolkit.core.errors import UsageFault
from toolkit.core.journal import read
from toolkit.core.sample import SloClass
from toolkit.core.seed import Seeds
from toolkit.core.slo import Slo
from workloads.profile import Profile, load_profile
from workloads.record import LoadSample
from workloads.report.summary import good
from workloads.scrape import HISTORY
from workloads.shape import Stretch, phases_s, scaled
from workloads.surge import HONEST_SHARE, SurgeVerdict, judge, since
from workloads.surge_figures import Interval, Shot
from workloads.surge_pages import Pages, Peak, read_pages

PHASES = ("baseline", "surge", "recovery")


def surge_profile(profile: Profile, peak: float, time_scale: float) -> Profile:
    """The profile at that peak (requests/s), `time_scale` times as long.

    A profile of one steady rate is given the phases, and the clients that come back, of the built-in surge. Raises
    UsageFault when it has phases that are no surge, or arrivals that no rate steers.
    """
    if not profile.phases:
        if not profile.has_rate:
            raise UsageFault(
                f"profile {profile.name!r} cannot surge: no rate steers its arrivals, which are recorded or a closed loop."
            )
        usual = load_profile("surge", {})
        profile = profile.model_copy(update={"phases": usual.phases, "returning": usual.returning})
    if tuple(phase.name for phase in profile.phases) != PHASES:
        raise UsageFault(
            f"profile {profile.name!r} is no surge: it needs the phases {', '.join(PHASES)}, in this order."
        )
    phases = scaled(profile.phases, time_scale)
    return profile.model_copy(update={"phases": phases, "rate": peak, "duration_s": phases_s(phases)})


def shots(samples: Sequence[LoadSample], slos: Mapping[SloClass, Slo]) -> list[Shot]:
    """The samples as a verdict sees them: good is completed as it was asked, within the limits, from the intended arrival."""
    return [
        Shot(
            at_s=sample.intended_s,
            workload_class=sample.workload_class,
            good=good(sample, slos),
            completed=sample.completed,
            ttft_s=sample.ttft_scheduled_s,
            code=sample.code,
            returned=not sample.first,
            admitted=sample.admitted,
        )
        for sample in samples
    ]


def verdict_of(folder: Path, profile: Profile) -> SurgeVerdict:
    """Judge a recorded run. Raises UsageFault when it is too short to judge."""
    samples = [LoadSample.from_dict(record) for record in read(folder / "samples.jsonl")]
    stretches: dict[str, Stretch] = {stretch.name: stretch for stretch in profile.stretches()}
    surge, last = stretches["surge"], stretches["recovery"]
    try:
        return judge(
            shots(samples, profile.slo.slos()),
            surge.begin_s,
            surge.end_s,
            last.end_s,
            Seeds(profile.seed).rng("surge.bootstrap"),
            pages_of(folder, samples, surge),
        )
    except ValueError as error:
        raise UsageFault(f"{folder}: cannot be judged: {error}.") from error


def pages_of(folder: Path, samples: Sequence[LoadSample], surge: Stretch) -> Pages:
    """What the run's metrics.jsonl says of its surge."""
    history = folder / f"{HISTORY}.jsonl"
    offered = [sample.intended_s for sample in samples if sample.first]
    return read_pages(read(history) if history.is_file() else (), offered, surge.begin_s, surge.end_s)


def to_dict(verdict: SurgeVerdict) -> dict[str, Any]:
    """Plain JSON types under stable keys."""
    pages = verdict.pages
    return {
        "passed": not verdict.failures,
        "failures": list(verdict.failures),
        "notes": list(verdict.notes),
        "baseline": {
            "goodput_per_s": verdict.baseline_goodput.to_dict(),
            "attainment": verdict.baseline_attainment.to_dict(),
            "ttft_p95_s": verdict.baseline_p95_s.to_dict() if verdict.baseline_p95_s else None,
        },
        "surge": {
            "goodput_per_s": verdict.surge_goodput.to_dict(),
            "kept": verdict.kept.to_dict(),
            "breached_after_s": verdict.breached_after_s,
            "classes": [
                {
                    "class": share.workload_class.value,
                    "offered": share.offered,
                    "good": share.good,
                    "fair": share.fair,
                }
                for share in verdict.classes
            ],
            "honest_429": verdict.honest_429.to_dict() if verdict.honest_429 else None,
            "returned": verdict.returned,
        },
        "longest_without_good": asdict(verdict.barren) if verdict.barren else None,
        "largest_queue": _peak(verdict.pages.queue),
        "retry_amplification": asdict(pages.amplification) if pages.amplification else None,
        "not_measurable": dict(pages.why),
        "recovered_after_s": verdict.recovered_after_s,
    }


def render(verdict: SurgeVerdict, peak: float) -> str:
    """A few lines for a terminal; intervals are 95 %."""
    lines = [
        f"peak {peak:g}/s: 80 % of it, 200 % at once, 80 % again",
        f"  baseline    goodput {_span(verdict.baseline_goodput, '/s')}, SLO kept {_span(verdict.baseline_attainment, percent=True)}"
        + (f", TTFT P95 {_span(verdict.baseline_p95_s, ' s')}" if verdict.baseline_p95_s else ""),
        f"  surge       goodput {_span(verdict.surge_goodput, '/s')}, {_span(verdict.kept, percent=True)} of the baseline's",
        f"  breach      {_after(verdict.breached_after_s, 'the surge began', 'no window fell under its objective')}",
        f"  recovered   {_after(verdict.recovered_after_s, 'the surge ended', 'not before the run ended')}",
    ]
    lines += [
        f"  {share.workload_class.value:<18}{share.offered:>5.0%} of the offer, "
        + ("nothing at all was good" if share.good is None else f"{share.good:>5.0%} of the goodput")
        for share in verdict.classes
    ]
    lines += [f"  {name:<12}{text}" for name, text in _under_load(verdict)]
    lines += [f"  note: {note}" for note in verdict.notes]
    lines += [f"FAILED: {failure}" for failure in verdict.failures] or ["PASSED"]
    return "\n".join(lines)


def _under_load(verdict: SurgeVerdict) -> list[tuple[str, str]]:
    """What became of those who waited, were sent away, or were tried again."""
    barren, pages, honest = verdict.barren, verdict.pages, verdict.honest_429
    tried = pages.amplification
    return [
        (
            "barren",
            "every request was good"
            if barren is None
            else f"at most {barren.length_s:.0f} s without a good request ({barren.requests} came), from "
            + since(barren, verdict.surge_begin_s),
        ),
        (
            "came back",
            "nobody"
            if honest is None
            else f"{verdict.returned} after their Retry-After, {_span(honest, percent=True)} of them admitted "
            f"(at least {HONEST_SHARE:.0%} is honest)",
        ),
        ("queue", _told(pages.queue, pages.why.get("queue", ""), "waiting at most")),
        (
            "attempts",
            f"not measurable: {pages.why.get('amplification', '')}"
            if tried is None
            else f"{tried.surge:.2f} per request offered from the surge on, {tried.baseline:.2f} before ({tried.counted})",
        ),
    ]


def _told(peak: Peak | None, why: str, what: str) -> str:
    if peak is None:
        return f"not measurable: {why}"
    where = ", ".join(f"{source} {count}" for source, count in peak.where)
    return f"{peak.count} {what}, at {peak.at_s:.0f} s" + (f" ({where})" if where else "")


def _peak(peak: Peak | None) -> dict[str, Any] | None:
    return None if peak is None else {"count": peak.count, "at_s": peak.at_s, "where": dict(peak.where)}


def _span(interval: Interval, unit: str = "", percent: bool = False) -> str:
    shape = "{:.0%}" if percent else "{:.3g}" + unit
    return f"{shape.format(interval.value)} ({shape.format(interval.low)} to {shape.format(interval.high)})"


def _after(seconds: float | None, since: str, never: str) -> str:
    return never if seconds is None else f"{seconds:.0f} s after {since}"
