"""Figures of a surge's stretches with their intervals: a block bootstrap. Pure.

Intervals are 95 % percentile intervals over windows of BLOCK_S seconds: neighbouring requests meet the same queue, so
single requests are no independent draws (Künsch 1989).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from toolkit.core.sample import WorkloadClass

FloatArray = npt.NDArray[np.float64]

BLOCK_S = 10.0
REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Shot:
    """One attempt as the verdict sees it. at_s: its intended arrival after the run's start; ttft_s: from it.

    returned: sent again after a refusal's Retry-After. admitted: taken by the server, however it ended.
    """

    at_s: float
    workload_class: WorkloadClass
    good: bool
    completed: bool
    ttft_s: float | None
    code: str | None = None
    returned: bool = False
    admitted: bool = True


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"value": round(self.value, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


@dataclass(frozen=True, slots=True)
class Block:
    """What one block of time adds to any figure."""

    good: int
    admitted: int
    offered: int
    ttft_s: FloatArray


Figure = Callable[[Sequence[Block]], float]


def blocks(shots: Sequence[Shot], begin_s: float, end_s: float) -> list[Block]:
    """The stretch in blocks of about BLOCK_S. What came after its end belongs to the last."""
    count = max(1, round((end_s - begin_s) / BLOCK_S))
    parts: list[list[Shot]] = [[] for _ in range(count)]
    for shot in shots:
        parts[min(count - 1, int((shot.at_s - begin_s) / (end_s - begin_s) * count))].append(shot)
    return [
        Block(
            sum(shot.good for shot in part),
            sum(shot.admitted for shot in part),
            len(part),
            np.array([s.ttft_s for s in part if s.ttft_s is not None]),
        )
        for part in parts
    ]


def interval(over: Sequence[Block], figure: Figure, rng: Generator) -> Interval:
    """The figure of these blocks; draws in which it is not defined say nothing."""
    value = figure(over)
    known = [one for one in map(figure, _draws(over, rng)) if not np.isnan(one)]
    # By rank: a figure may be infinite, and nothing lies between that and another.
    ends = np.percentile(known or [value], [2.5, 97.5], method="inverted_cdf")
    return Interval(value, *(float(end) for end in ends))


def ratio(
    baseline: Sequence[Block], baseline_s: float, surge: Sequence[Block], surge_s: float, rng: Generator
) -> Interval:
    """Goodput of the surge over the baseline's; 0 where the baseline had none."""
    below, above = goodput(baseline_s), goodput(surge_s)

    def of(before: Sequence[Block], during: Sequence[Block]) -> float:
        base = below(before)
        return above(during) / base if base else 0.0

    pairs = zip(_draws(baseline, rng), _draws(surge, rng), strict=True)
    low, high = np.percentile([of(*pair) for pair in pairs], [2.5, 97.5])
    return Interval(of(baseline, surge), float(low), float(high))


def goodput(seconds: float) -> Figure:
    """Good requests per second of a stretch that long."""
    return lambda over: sum(block.good for block in over) / seconds


def attainment(over: Sequence[Block]) -> float:
    offered = sum(block.offered for block in over)
    return sum(block.good for block in over) / offered if offered else float("nan")


def admitted_share(over: Sequence[Block]) -> float:
    offered = sum(block.offered for block in over)
    return sum(block.admitted for block in over) / offered if offered else float("nan")


def ttft_p95(over: Sequence[Block]) -> float:
    seen = np.concatenate([block.ttft_s for block in over]) if over else np.array([])
    return float(np.percentile(seen, 95)) if seen.size else float("nan")


def _draws(over: Sequence[Block], rng: Generator) -> list[list[Block]]:
    chosen = rng.integers(0, len(over), size=(REPEATS, len(over)))
    return [[over[index] for index in row] for row in chosen.tolist()]
