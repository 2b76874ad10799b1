"""Verdicts on a surge: was the baseline sound, was goodput kept, who paid, how long until it was well again. Pure.

A surge is 80 % of the peak, twice the peak at once, 80 % again (article section 6.2). "Good" is a request that completed
within its SLO class's limits, from its intended arrival; what failed, was refused or never sent is offered and not good.

Intervals are 95 % percentile intervals of a block bootstrap over windows of BLOCK_S seconds: neighbouring requests meet the
same queue, so single requests are no independent draws (Künsch 1989).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from toolkit.core.sample import WorkloadClass
from toolkit.core.slo import percentile

FloatArray = npt.NDArray[np.float64]

BLOCK_S = 10.0
WINDOW_S = 20.0
REPEATS = 1000
ENOUGH_BLOCKS = 6
COLLAPSE_SHARE = 0.95
"""Goodput under the surge below this share of the baseline's is a collapse (article section 1.3: no avalanche at 2x)."""

FAIR_POINTS = 0.10
"""A class's share of the goodput may differ from its share of the offer by this much: no surge is survived by shedding one class."""

HONEST_SHARE = 0.80
"""Of those who come back after Retry-After, this share must be admitted, or the header is a polite lie."""

BREACH_ATTAINMENT = 0.95


@dataclass(frozen=True, slots=True)
class Shot:
    """One offered request as the verdict sees it. at_s: intended arrival after the run's start; ttft_s: from it."""

    at_s: float
    workload_class: WorkloadClass
    good: bool
    completed: bool
    ttft_s: float | None
    code: str | None = None
    returned: bool = False  # sent again after a 429's Retry-After


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"value": round(self.value, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


@dataclass(frozen=True, slots=True)
class ClassShare:
    """One class under the surge: its share of the offer and of the goodput."""

    workload_class: WorkloadClass
    offered: float
    good: float

    @property
    def fair(self) -> bool:
        return abs(self.offered - self.good) <= FAIR_POINTS


@dataclass(frozen=True, slots=True)
class SurgeVerdict:
    """What a surge showed. None: could not be measured, and `notes` says why."""

    baseline_goodput: Interval  # good requests per second
    baseline_attainment: Interval
    baseline_p95_s: Interval | None
    surge_goodput: Interval
    kept: Interval  # surge goodput / baseline goodput
    classes: tuple[ClassShare, ...]
    breached_after_s: float | None  # from the surge's start
    recovered_after_s: float | None  # from the surge's end
    honest_429: float | None
    returned: int
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
        found += [
            f"{share.workload_class.value} paid: {share.offered:.0%} of the offer, {share.good:.0%} of the goodput"
            for share in self.classes
            if not share.fair
        ]
        if self.recovered_after_s is None:
            found.append("it did not recover before the run's end")
        if self.honest_429 is not None and self.honest_429 < HONEST_SHARE:
            found.append(f"only {self.honest_429:.0%} of those who came back after Retry-After were admitted")
        return tuple(found)


def judge(shots: Sequence[Shot], begin_s: float, end_s: float, run_s: float, rng: Generator) -> SurgeVerdict:
    """The verdict on a run whose surge lasted from `begin_s` to `end_s` of `run_s` seconds.

    Raises ValueError when a stretch has no request: then there is nothing to judge.
    """
    first = [shot for shot in shots if not shot.returned]
    before = [shot for shot in first if shot.at_s < begin_s]
    during = [shot for shot in first if begin_s <= shot.at_s < end_s]
    after = [shot for shot in first if shot.at_s >= end_s]
    for name, part in (("baseline", before), ("surge", during), ("recovery", after)):
        if not part:
            raise ValueError(f"the {name} has no request: the run is too short or its rate too low")
    notes: list[str] = []
    baseline, surge = _blocks(before, 0.0, begin_s), _blocks(during, begin_s, end_s)
    baseline_goodput = _interval(baseline, _goodput(begin_s), rng)
    p95 = _interval(baseline, _p95, rng) if any(shot.ttft_s is not None for shot in before) else None
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
        baseline_attainment=_interval(baseline, _attainment, rng),
        baseline_p95_s=p95,
        surge_goodput=_interval(surge, _goodput(end_s - begin_s), rng),
        kept=_ratio(baseline, begin_s, surge, end_s - begin_s, rng),
        classes=_shares(during),
        breached_after_s=_breach(during, begin_s, end_s),
        recovered_after_s=None if p95 is None else _recovery(after, end_s, run_s, p95.high),
        honest_429=sum(shot.completed for shot in returned) / len(returned) if returned else None,
        returned=len(returned),
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class Block:
    """What one block of time adds to any figure."""

    good: int
    offered: int
    ttft_s: FloatArray


Figure = Callable[[Sequence[Block]], float]


def _blocks(shots: Sequence[Shot], begin_s: float, end_s: float) -> list[Block]:
    count = max(1, round((end_s - begin_s) / BLOCK_S))
    parts: list[list[Shot]] = [[] for _ in range(count)]
    for shot in shots:
        parts[min(count - 1, int((shot.at_s - begin_s) / (end_s - begin_s) * count))].append(shot)
    return [
        Block(
            sum(shot.good for shot in part),
            len(part),
            np.array([s.ttft_s for s in part if s.ttft_s is not None]),
        )
        for part in parts
    ]


def _draws(blocks: Sequence[Block], rng: Generator) -> list[list[Block]]:
    chosen = rng.integers(0, len(blocks), size=(REPEATS, len(blocks)))
    return [[blocks[index] for index in row] for row in chosen.tolist()]


def _interval(blocks: Sequence[Block], figure: Figure, rng: Generator) -> Interval:
    value = figure(blocks)
    known = [one for one in map(figure, _draws(blocks, rng)) if not np.isnan(one)]
    return Interval(value, *(float(x) for x in np.percentile(known or [value], [2.5, 97.5])))


def _ratio(
    baseline: Sequence[Block], baseline_s: float, surge: Sequence[Block], surge_s: float, rng: Generator
) -> Interval:
    below, above = _goodput(baseline_s), _goodput(surge_s)

    def ratio(before: Sequence[Block], during: Sequence[Block]) -> float:
        base = below(before)
        return above(during) / base if base else 0.0

    pairs = zip(_draws(baseline, rng), _draws(surge, rng), strict=True)
    low, high = np.percentile([ratio(*pair) for pair in pairs], [2.5, 97.5])
    return Interval(ratio(baseline, surge), float(low), float(high))


def _goodput(seconds: float) -> Figure:
    return lambda blocks: sum(block.good for block in blocks) / seconds


def _attainment(blocks: Sequence[Block]) -> float:
    offered = sum(block.offered for block in blocks)
    return sum(block.good for block in blocks) / offered if offered else float("nan")


def _p95(blocks: Sequence[Block]) -> float:
    seen = np.concatenate([block.ttft_s for block in blocks]) if blocks else np.array([])
    return float(np.percentile(seen, 95)) if seen.size else float("nan")


def _shares(during: Sequence[Shot]) -> tuple[ClassShare, ...]:
    offered, good = _counts(during), _counts([shot for shot in during if shot.good])
    everyone, winners = sum(offered.values()), sum(good.values())
    return tuple(
        ClassShare(one, offered[one] / everyone, good.get(one, 0) / winners if winners else 0.0)
        for one in sorted(offered)
    )


def _counts(shots: Sequence[Shot]) -> Mapping[WorkloadClass, int]:
    counted: dict[WorkloadClass, int] = {}
    for shot in shots:
        counted[shot.workload_class] = counted.get(shot.workload_class, 0) + 1
    return counted


def _breach(during: Sequence[Shot], begin_s: float, end_s: float) -> float | None:
    """End of the first window whose attainment is under the objective; None when there is none."""
    for start, window in _windows(during, begin_s, end_s):
        if window and sum(shot.good for shot in window) < BREACH_ATTAINMENT * len(window):
            return start + WINDOW_S - begin_s
    return None


def _recovery(after: Sequence[Shot], end_s: float, run_s: float, bound_s: float) -> float | None:
    """End of the first window after the surge in which every request was answered and P95 TTFT is under the bound."""
    for start, window in _windows(after, end_s, run_s):
        seen = [shot.ttft_s for shot in window if shot.ttft_s is not None]
        if seen and all(shot.completed for shot in window) and percentile(seen, 0.95) <= bound_s:
            return start + WINDOW_S - end_s
    return None


def _windows(shots: Sequence[Shot], begin_s: float, end_s: float) -> list[tuple[float, list[Shot]]]:
    starts = np.arange(begin_s, max(begin_s, end_s - WINDOW_S) + 1e-9, 1.0)
    return [
        (float(start), [shot for shot in shots if start <= shot.at_s < start + WINDOW_S]) for start in starts
    ]
