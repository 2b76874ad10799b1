"""Which rate to probe next, and when a peak is known. Pure: the probes so far give the next rate or the result.

From the start rate up (or down) in growing steps until one rate is held and a higher one is not; then bisection of that
bracket in log space, since a capacity is as likely anywhere on a scale of ratios. A rate that stayed undecided counts as
not held. A probe during which the generator was late says nothing of the server: it is made once more, since a busy
neighbour looks the same, and the second time the search stops.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

STEPS = (2.0, 2.0, 2.0)
LATER_STEP = 4.0
CLOSE_ENOUGH = 1.04
"""A bracket is not narrowed below this ratio: the time in which two such rates can be told apart is longer than a probe."""


class Verdict(StrEnum):
    """What one probe says of its rate."""

    HELD = "held"
    FAILED = "failed"
    UNDECIDED = "undecided"  # its time ran out
    SATURATED = "generator saturated"  # says nothing of the server


@dataclass(frozen=True, slots=True)
class Search:
    """What may be probed. Rates are requests per second."""

    start: float
    low: float
    high: float
    max_probes: int = 10

    def __post_init__(self) -> None:
        """Raises ValueError for what leaves nothing to probe."""
        if not 0 < self.low <= self.high:
            raise ValueError("--low is above 0 and not above --high")
        if self.max_probes < 1:
            raise ValueError("at least one probe is needed")


@dataclass(frozen=True, slots=True)
class Tried:
    """One probe as the search sees it."""

    rate: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search. peak: the highest rate held; not_held: the lowest rate above it that was not; None: none."""

    peak: float | None
    not_held: float | None
    reason: str


def next_step(search: Search, tried: Sequence[Tried]) -> float | Found:
    """The next rate to probe, or the result. Deterministic; never below `low`, above `high`, or past `max_probes`."""
    late = [one for one in tried if one.verdict is Verdict.SATURATED]
    if any(one.rate == other.rate for n, one in enumerate(late) for other in late[:n]):
        return found(
            tried, f"the load generator is too slow for {late[-1].rate:g}/s: use a faster or quieter machine"
        )
    if len(tried) >= search.max_probes:
        return found(tried, f"all {search.max_probes} probes are spent")
    if tried and tried[-1].verdict is Verdict.SATURATED:
        return tried[-1].rate
    held, failed = _held(tried), _not_held(tried)
    if held is None and failed is None:
        return _inside(search, search.start)
    if failed is None:
        assert held is not None
        if held >= search.high:
            return found(tried, f"held up to the highest rate allowed, {search.high:g}/s")
        return _inside(search, held * _step(len(tried) - len(late)))
    if held is None:
        if failed <= search.low:
            return found(tried, f"not even the lowest rate allowed was held, {search.low:g}/s")
        return _inside(search, failed / _step(len(tried) - len(late)))
    middle = _inside(search, math.sqrt(held * failed))
    if failed / held <= CLOSE_ENOUGH or not held < middle < failed:
        return found(tried, "the bracket is as narrow as a probe can tell")
    return middle


def found(tried: Sequence[Tried], reason: str) -> Found:
    """What is known now, whatever ended the search."""
    return Found(_held(tried), _not_held(tried), reason)


def _held(tried: Sequence[Tried]) -> float | None:
    return max((one.rate for one in tried if one.verdict is Verdict.HELD), default=None)


def _not_held(tried: Sequence[Tried]) -> float | None:
    bad = (Verdict.FAILED, Verdict.UNDECIDED)
    return min((one.rate for one in tried if one.verdict in bad), default=None)


def _step(done: int) -> float:
    return STEPS[done - 1] if done <= len(STEPS) else LATER_STEP


def _inside(search: Search, rate: float) -> float:
    """Three digits are plenty, and make names that people can read."""
    return min(search.high, max(search.low, float(f"{rate:.3g}")))
