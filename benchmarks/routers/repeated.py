"""One front under the surge several times, each with arrivals of its own: what can be relied on."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.record import LoadSample

KEPT, RECOVERED_S, POINTS, AT_ONCE, AT_ONCE_S = 0.9, 30.0, 0.10, 0.95, 0.5
"""Goodput kept of the peak; recovered within; a class's share of the goodput from its share of the offer; the part of those
not served in time that was told 429, within so many seconds of asking."""
STUDENT = {2: 6.314, 3: 2.920, 4: 2.353, 5: 2.132, 6: 2.015, 7: 1.943, 8: 1.895, 9: 1.860, 10: 1.833}
"""By the number of runs: Student's t, one-sided 95 %, with one degree of freedom less."""


@dataclass(frozen=True)
class Repeat:
    """One run. kept: surge goodput over the peak. recovered_s: None where it did not. apart: the largest difference between a
    class's share of the goodput and of the offer. at_once: of those not served in time; 1 where all were. seed: of its draws."""

    seed: int
    kept: float
    recovered_s: float | None
    apart: float
    at_once: float


def repeat_of(
    seed: int,
    verdict: dict[str, Any],
    peak: float,
    samples: Sequence[LoadSample],
    surge_s: tuple[float, float],
) -> Repeat:
    """surge_s: when it began and ended, seconds after the run's begin."""
    shares = verdict["surge"]["classes"]
    asked = [one for one in samples if one.first and surge_s[0] <= one.intended_s < surge_s[1]]
    excess = [one for one in asked if not one.completed]
    told = [one for one in excess if one.status == 429 and took_s(one) <= AT_ONCE_S]
    return Repeat(
        seed,
        verdict["surge"]["goodput_per_s"]["value"] / peak,
        verdict["recovered_after_s"],
        max(abs((one["good"] or 0.0) - one["offered"]) for one in shares),
        len(told) / len(excess) if excess else 1.0,
    )


def took_s(sample: LoadSample) -> float:
    return math.inf if sample.sent_s is None else sample.ended_s - sample.sent_s


def lower_bound(values: Sequence[float]) -> float:
    """Of their mean, with 95 % confidence."""
    spread = statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values) - STUDENT[len(values)] * spread


def bounds(repeats: Sequence[Repeat]) -> Iterator[tuple[str, str, bool]]:
    """What, as measured, kept."""
    low = lower_bound([one.kept for one in repeats])
    yield f"goodput kept, lower bound of the mean >= {KEPT:.0%} of the peak", f"{low:.0%}", low >= KEPT
    late = [one.recovered_s for one in repeats]
    worst = None if None in late else max(second for second in late if second is not None)
    yield (
        f"recovered within {RECOVERED_S:g} s, every time",
        "not every time" if worst is None else f"{worst:.0f} s at most",
        worst is not None and worst <= RECOVERED_S,
    )
    apart = max(one.apart for one in repeats)
    yield (
        f"each class's share of the goodput within {100 * POINTS:g} points of its offer, every time",
        f"{100 * apart:.0f} points at most",
        apart <= POINTS,
    )
    least = min(one.at_once for one in repeats)
    yield (
        f"of the excess at least {AT_ONCE:.0%} is told 429 within {AT_ONCE_S:g} s, every time",
        f"{least:.0%} at least",
        least >= AT_ONCE,
    )


def section(front: str, repeats: Sequence[Repeat]) -> list[str]:
    """As lines of a page."""
    return [
        f"## {front}, {len(repeats)} times",
        "",
        "Arrivals drawn anew each time; the first are those above.",
        "",
        "| seed | goodput in the surge, of the peak | recovered after | largest difference of shares | excess told 429 at once |",
        "|---|---|---|---|---|",
        *(
            f"| {one.seed} | {one.kept:.0%} | {'not' if one.recovered_s is None else f'{one.recovered_s:.0f} s'} | "
            f"{100 * one.apart:.0f} points | {one.at_once:.0%} |"
            for one in repeats
        ),
        "",
        "| bound | measured | |",
        "|---|---|---|",
        *(
            f"| {what} | {seen} | {'kept' if well else '**not kept**'} |"
            for what, seen, well in bounds(repeats)
        ),
        "",
    ]
