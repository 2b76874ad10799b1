"""Clients that come back when they are told to, in virtual time: before a prefill that computes four prompts a second."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.serving.schedule.virtual import Ask, Fate, Prefill, rules, run
from toolkit.core.errors import Busy
from toolkit.core.sample import WorkloadClass

PEAK = 4.0
"""Requests per second that the prefill can do: MEAN_TOKENS each, at TOKEN_S."""
TOKEN_S, MEAN_TOKENS = 1e-4, 2500
Phases = Sequence[tuple[float, float, float]]
"""(from, to, part of PEAK that comes)."""
LOADS: dict[str, Phases] = {
    "a burst: four times the peak for 5 s, half of it around": ((0, 30, 0.5), (30, 35, 4.0), (35, 120, 0.5)),
    "the surge: twice the peak for 30 s, then 80 %": ((0, 30, 0.8), (30, 60, 2.0), (60, 120, 0.8)),
    "too much for good: 130 % for 90 s": ((0, 30, 0.8), (30, 120, 1.3)),
}

Says = Callable[[float, float], float]
"""Given what the gateway says, seconds, and now: when the client is told to come back, seconds."""


def as_it_says(says_s: float, _: float) -> float:
    return says_s


@dataclass(frozen=True)
class Returned:
    """firsts: who came of their own; seconds: who came back; told_s: after how long."""

    firsts: list[Fate]
    seconds: list[Fate]
    told_s: list[float]

    @property
    def second_share(self) -> float:
        """Of those who came back when told, how many were served in time."""
        return sum(fate.good for fate in self.seconds) / len(self.seconds)

    @property
    def amid_share(self) -> float:
        """The same of those alone who came back while others still came of their own."""
        amid = [fate for fate in self.seconds if fate.ask.at <= self.firsts[-1].ask.at]
        return sum(fate.good for fate in amid) / len(amid)

    @property
    def either_share(self) -> float:
        """Of all, how many were served in time at the first or the second try."""
        return sum(fate.good for fate in (*self.firsts, *self.seconds)) / len(self.firsts)


def arrivals(seed: int, phases: Phases) -> list[Ask]:
    source = random.Random(seed)
    asks = []
    for begin, end, part in phases:
        now = begin + source.expovariate(part * PEAK)
        while now < end:
            tokens = int(MEAN_TOKENS * source.uniform(0.4, 1.6))
            kind = WorkloadClass.MULTI_IMAGE_LONG
            asks.append(Ask(now, tokens, hold_s=0.5, budget_s=3.0, workload_class=kind))
            now += source.expovariate(part * PEAK)
    return asks


def returning(asks: list[Ask], says: Says = as_it_says) -> Returned:
    """Play them with clients that come back once, exactly when they are told to."""
    told_s: list[float] = []

    def comes_back(fate: Fate, now: float) -> Ask | None:
        error = fate.refused
        if fate.number >= len(asks) or not isinstance(error, Busy) or error.retry_after_s is None:
            return None
        told_s.append(says(error.retry_after_s, now))
        return replace(fate.ask, at=now + told_s[-1])

    told = rules(64, 256, min_in_flight=2, adaptive=True)
    fates = run(told, asks, Prefill(TOKEN_S), comes_back=comes_back)
    return Returned(fates[: len(asks)], fates[len(asks) :], told_s)
