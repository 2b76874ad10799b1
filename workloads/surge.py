"""Verdicts on a surge: was the baseline sound, was goodput kept, who paid, how long until it was well again. Pure.

A surge is 80 % of the peak, twice the peak at once, 80 % again (article section 6.2). "Good" is a request that completed
within its SLO class's limits, from its intended arrival; what failed, was refused or never sent is offered and not good.
A client that was refused and came back offers nothing more: it is asked one thing only, whether it was admitted then.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from toolkit.core.sample import WorkloadClass
from workloads.surge_figures import (
    BLOCK_S,
    Interval,
    Shot,
    admitted_share,
    attainment,
    blocks,
    goodput,
    interval,
    ratio,
    ttft_p95,
)
from workloads.surge_pages import NO_PAGES, Pages

WINDOW_S = 20.0
ENOUGH_BLOCKS = 6
COLLAPSE_SHARE = 0.95
"""Goodput under the surge below this share of the baseline's is a collapse (article section 1.3: no avalanche at 2x)."""

FAIR_POINTS = 0.10
"""A class's share of the goodput may differ from its share of the offer by this much: no surge is survived by shedding one class."""

HONEST_SHARE = 0.80
"""Of those who come back after Retry-After, this share must be admitted, or the header is a polite lie."""

BREACH_ATTAINMENT = 0.95
BARREN_S, BARREN_REQUESTS = 10.0, 10
"""So long a time in which so many came and none was good is no chance: the service did nothing for anybody."""


@dataclass(frozen=True, slots=True)
class ClassShare:
    """One class under the surge: its share of the offer and of the goodput; None where nothing at all was good."""

    workload_class: WorkloadClass
    offered: float
    good: float | None

    @property
    def fair(self) -> bool:
        return self.good is None or abs(self.offered - self.good) <= FAIR_POINTS


@dataclass(frozen=True, slots=True)
class Barren:
    """The longest time in which requests came and none of them was good. begin_s: after the run's start."""

    begin_s: float
    length_s: float
    requests: int

    @property
    def long(self) -> bool:
        return self.length_s >= BARREN_S and self.requests >= BARREN_REQUESTS


@dataclass(frozen=True, slots=True)
class SurgeVerdict:
    """What a surge showed. None: could not be measured, and `notes` says why."""

    baseline_goodput: Interval  # good requests per second
    baseline_attainment: Interval
    baseline_p95_s: Interval | None
    surge_goodput: Interval
    kept: Interval  # surge goodput / baseline goodput
    classes: tuple[ClassShare, ...]
    barren: Barren | None  # None: every request was good
    surge_begin_s: float
    breached_after_s: float | None  # from the surge's start
    recovered_after_s: float | None  # from the surge's end
    honest_429: Interval | None
    returned: int
    pages: Pages
    notes: tuple[str, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """What was not passed, in words; empty when the surge was survived."""
        found = []
        if self.baseline_attainment.high < BREACH_ATTAINMENT:
            found.append(
                f"the baseline itself kept only {self.baseline_attainment.value:.0%} of its SLOs: the peak is set too high"
            )
        if self.kept.high < COLLAPSE_SHARE:
            found.append(
                f"goodput fell to {self.kept.value:.0%} of the baseline's ({self.kept.low:.0%} to {self.kept.high:.0%})"
            )
        if self.barren is not None and self.barren.long:
            found.append(
                f"no request was good for {self.barren.length_s:.0f} s, from {since(self.barren, self.surge_begin_s)}"
            )
        found += [
            f"{share.workload_class.value} paid: {share.offered:.0%} of the offer, {share.good:.0%} of the goodput"
            if share.good < share.offered
            else f"{share.workload_class.value} was favoured: {share.offered:.0%} of the offer, {share.good:.0%} of the goodput"
            for share in self.classes
            if share.good is not None and not share.fair
        ]
        if self.recovered_after_s is None:
            found.append("it did not recover before the run's end")
        if self.honest_429 is not None and self.honest_429.value < HONEST_SHARE:
            found.append(
                f"only {self.honest_429.value:.0%} of those who came back after Retry-After were admitted"
            )
        return tuple(found)


def since(barren: Barren, surge_begin_s: float) -> str:
    """Where it began, in words."""
    late_s = barren.begin_s - surge_begin_s
    return f"{abs(late_s):.0f} s {'after' if late_s >= 0 else 'before'} the surge began"


def judge(
    shots: Sequence[Shot],
    begin_s: float,
    end_s: float,
    run_s: float,
    rng: Generator,
    pages: Pages = NO_PAGES,
) -> SurgeVerdict:
    """The verdict on a run whose surge lasted from `begin_s` to `end_s` of `run_s` seconds.

    Raises ValueError when a stretch has no request: then there is nothing to judge.
    """
    first = sorted((shot for shot in shots if not shot.returned), key=lambda shot: shot.at_s)
    before = [shot for shot in first if shot.at_s < begin_s]
    during = [shot for shot in first if begin_s <= shot.at_s < end_s]
    after = [shot for shot in first if shot.at_s >= end_s]
    for name, part in (("baseline", before), ("surge", during), ("recovery", after)):
        if not part:
            raise ValueError(f"the {name} has no request: the run is too short or its rate too low")
    notes: list[str] = []
    baseline, surge = blocks(before, 0.0, begin_s), blocks(during, begin_s, end_s)
    baseline_goodput = interval(baseline, goodput(begin_s), rng)
    p95 = interval(baseline, ttft_p95, rng) if any(shot.ttft_s is not None for shot in before) else None
    if p95 is None:
        notes.append("the baseline has no first token: recovery cannot be judged")
    fewest = min(len(baseline), len(surge))
    if fewest < ENOUGH_BLOCKS:
        notes.append(
            f"only {fewest} blocks of {BLOCK_S:.0f} s in a stretch: the intervals say little; run it longer"
        )
    returned = [shot for shot in shots if shot.returned]
    if not returned:
        notes.append("nobody was told to come back later, so the honesty of 429 was not tested")
    return SurgeVerdict(
        baseline_goodput=baseline_goodput,
        baseline_attainment=interval(baseline, attainment, rng),
        baseline_p95_s=p95,
        surge_goodput=interval(surge, goodput(end_s - begin_s), rng),
        kept=ratio(baseline, begin_s, surge, end_s - begin_s, rng),
        classes=_shares(during),
        barren=_barren(first, run_s),
        surge_begin_s=begin_s,
        breached_after_s=_breach(during, begin_s, end_s),
        recovered_after_s=None if p95 is None else _recovery(after, end_s, run_s, p95.high),
        honest_429=interval(blocks(returned, 0.0, run_s), admitted_share, rng) if returned else None,
        returned=len(returned),
        pages=pages,
        notes=tuple(notes),
    )


def _shares(during: Sequence[Shot]) -> tuple[ClassShare, ...]:
    offered, good = _counts(during), _counts([shot for shot in during if shot.good])
    everyone, winners = sum(offered.values()), sum(good.values())
    return tuple(
        ClassShare(one, offered[one] / everyone, good.get(one, 0) / winners if winners else None)
        for one in sorted(offered)
    )


def _counts(shots: Sequence[Shot]) -> Mapping[WorkloadClass, int]:
    counted: dict[WorkloadClass, int] = {}
    for shot in shots:
        counted[shot.workload_class] = counted.get(shot.workload_class, 0) + 1
    return counted


def _barren(first: Sequence[Shot], run_s: float) -> Barren | None:
    """From the first of a row of requests that were not good to the next good one, or to the run's end."""
    rows: list[Barren] = []
    begin_s, count = 0.0, 0
    for shot in first:
        if not shot.good:
            begin_s = shot.at_s if not count else begin_s
            count += 1
        elif count:
            rows.append(Barren(begin_s, shot.at_s - begin_s, count))
            count = 0
    if count:
        rows.append(Barren(begin_s, run_s - begin_s, count))
    return max(rows, key=lambda row: row.length_s, default=None)


def _breach(during: Sequence[Shot], begin_s: float, end_s: float) -> float | None:
    """End of the first window whose attainment is under the objective, at most the surge's; None when there is none."""
    for start, window in _windows(during, begin_s, end_s):
        if window and sum(shot.good for shot in window) < BREACH_ATTAINMENT * len(window):
            return min(start + WINDOW_S, end_s) - begin_s
    return None


def _recovery(after: Sequence[Shot], end_s: float, run_s: float, bound_s: float) -> float | None:
    """End of the first window after the surge whose P95 TTFT is under the bound, at most the run's.

    Over all who came in it: who did not get a whole answer waited for ever, or a service that sheds would be well at once.
    """
    for start, window in _windows(after, end_s, run_s):
        waits = sorted(
            shot.ttft_s if shot.completed and shot.ttft_s is not None else math.inf for shot in window
        )
        # The 95th of a hundred, not interpolated: infinity has no neighbour.
        if waits and waits[math.ceil(0.95 * len(waits)) - 1] <= bound_s:
            return min(start + WINDOW_S, run_s) - end_s
    return None


def _windows(shots: Sequence[Shot], begin_s: float, end_s: float) -> list[tuple[float, list[Shot]]]:
    starts = np.arange(begin_s, max(begin_s, end_s - WINDOW_S) + 1e-9, 1.0)
    return [
        (float(start), [shot for shot in shots if start <= shot.at_s < start + WINDOW_S]) for start in starts
    ]
