"""Judges one probe while it runs: which requests are good, and whether that decides the rate. Pure: told of time, has no clock.

Requests are judged in the order of their intended arrivals, up to the first whose fate is open, so that quick answers do
not speak for slow ones. A request without a token counts as missed as soon as its TTFT limit has passed; one that streams is
open to its end, since its gaps are promised too.

The first WARMUP_LIMITS TTFT limits are dropped: a queue that starts empty flatters the server.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolkit.core.plan import PlannedRequest
from toolkit.core.sample import SloClass
from toolkit.core.slo import Slo
from workloads.peak import Verdict
from workloads.record import LoadOutcome, LoadSample
from workloads.report.summary import good
from workloads.sequential import (
    NOTHING_SEEN,
    Bounds,
    Decision,
    FloatArray,
    bounds,
    decide,
    fewest_blocks,
    independent,
    next_look,
)

WARMUP_LIMITS = 10.0
BLOCK_LIMITS = 0.5
UNLIMITED_S = 1.0  # where nothing is promised but an answer
LEAST_REQUESTS = 2  # of a block: the delays of single requests hide the queue behind their own differences
WORST_DELAY = 1.5  # in TTFT limits; what is later, or never, is no later than that
OVERALL = "all"
MADE_OF = 2  # blocks that are joined at least: ceil(SAFETY)


@dataclass(frozen=True, slots=True)
class Test:
    """What a probe must show. block_s: time that the shortest block spans; warmup_s: not judged."""

    objective: float
    confidence: float
    block_s: float
    warmup_s: float

    __test__ = False  # for pytest

    @property
    def risk(self) -> float:
        return 1 - self.confidence

    def needed_s(self, rate: float) -> float:
        """The shortest probe that can show a faultless server to hold `rate`."""
        block_s = max(self.block_s, LEAST_REQUESTS / rate)
        return self.warmup_s + MADE_OF * fewest_blocks(self.objective, self.risk) * block_s


def test_for(slos: Sequence[Slo], objective: float, confidence: float) -> Test:
    """Timed by the slowest TTFT that is promised to any class of the mix."""
    limit_s = max((slo.ttft_s or UNLIMITED_S for slo in slos), default=UNLIMITED_S)
    return Test(objective, confidence, BLOCK_LIMITS * limit_s, WARMUP_LIMITS * limit_s)


test_for.__test__ = False  # type: ignore[attr-defined]


@dataclass(slots=True)
class Group:
    """One SLO class, or all. required: planned often enough that it could be confirmed; else it can only fail."""

    name: str
    at: list[int]  # places in the plan
    per_block: int
    required: bool
    known: int = 0  # of `at`, from its start
    look_at: int = field(default_factory=lambda: next_look(0))
    decision: Decision = Decision.OPEN
    bounds: Bounds = NOTHING_SEEN


class Watch:
    """One probe under way."""

    def __init__(self, plan: Sequence[PlannedRequest], slos: Mapping[SloClass, Slo], test: Test) -> None:
        self._plan = plan
        self._slos = slos
        self._test = test
        self._place = {request.index: place for place, request in enumerate(plan)}
        self._good: list[bool | None] = [None] * len(plan)
        self._delay = np.zeros(len(plan))
        self.misses: Counter[str] = Counter()
        self.groups = self._groups()
        self._under_risk = test.risk / max(1, len(self.groups))

    @property
    def verdict(self) -> Verdict:
        """As it stands; UNDECIDED while it is open."""
        if any(group.decision is Decision.UNDER for group in self.groups):
            return Verdict.FAILED
        required = [group for group in self.groups if group.required]
        if required and all(group.decision is Decision.OVER for group in required):
            return Verdict.HELD
        return Verdict.UNDECIDED

    @property
    def decided(self) -> bool:
        return self.verdict is not Verdict.UNDECIDED

    @property
    def overall(self) -> Group:
        return self.groups[-1]

    @property
    def failed_class(self) -> str | None:
        """The first class that was shown to miss the objective."""
        return next((group.name for group in self.groups if group.decision is Decision.UNDER), None)

    def record(self, sample: LoadSample) -> None:
        """A request's end. What comes after the decision was cut off by it and is not judged."""
        place = self._place.get(sample.index)
        if place is None or self.decided or self._good[place] is not None:
            return
        limit_s = self._slos[sample.slo_class].ttft_s
        kept = good(sample, self._slos)
        if not kept:
            self.misses[_why(sample, self._slos[sample.slo_class])] += 1
        delay = sample.ttft_scheduled_s
        if limit_s is None or delay is None or not sample.completed:
            self._settle(place, kept, 0.0 if kept else WORST_DELAY)
        else:
            self._settle(place, kept, min(WORST_DELAY, delay / limit_s))

    def tick(self, now_s: float, waiting: Sequence[int]) -> None:
        """The time, and the open requests without a token; looks where enough is new."""
        if self.decided:
            return
        for index in waiting:
            place = self._place[index]
            request = self._plan[place]
            limit_s = self._slos[request.slo_class].ttft_s
            if limit_s is not None and self._good[place] is None and now_s - request.at_s > limit_s:
                self.misses["ttft"] += 1
                self._settle(place, False, WORST_DELAY)
        self._look()

    def finish(self) -> None:
        """No more will come: one last look at what there is."""
        if not self.decided:
            self._look(last=True)

    def _settle(self, place: int, kept: bool, delay: float) -> None:
        self._good[place] = kept
        self._delay[place] = delay

    def _look(self, last: bool = False) -> None:
        for group in self.groups:
            while group.known < len(group.at) and self._good[group.at[group.known]] is not None:
                group.known += 1
            blocks = group.known // group.per_block
            if group.decision is Decision.OPEN and blocks and (last or blocks >= group.look_at):
                group.look_at = next_look(blocks)
                self._judge(group, blocks)

    def _judge(self, group: Group, blocks: int) -> None:
        places = group.at[: blocks * group.per_block]
        shape = (blocks, group.per_block)
        shares: FloatArray = (
            np.array([self._good[p] for p in places], dtype=np.float64).reshape(shape).mean(axis=1)
        )
        delays: FloatArray = self._delay[places].reshape(shape).mean(axis=1)
        joined, _ = independent(shares, delays)
        test = self._test
        group.decision = decide(joined, test.objective, test.risk, self._under_risk)
        edges = bounds(joined, test.risk, self._under_risk)
        group.bounds = Bounds(float(shares.mean()), edges.low, edges.high)

    def _groups(self) -> list[Group]:
        judged = [n for n, request in enumerate(self._plan) if request.at_s >= self._test.warmup_s]
        present = [c for c in SloClass if any(self._plan[n].slo_class is c for n in judged)]
        parts = {c.value: [n for n in judged if self._plan[n].slo_class is c] for c in present}
        if len(present) != 1:
            parts[OVERALL] = judged
        return [self._group(name, at) for name, at in parts.items()]

    def _group(self, name: str, at: list[int]) -> Group:
        span_s = (self._plan[at[-1]].at_s - self._plan[at[0]].at_s) if at else 0.0
        rate = len(at) / span_s if span_s else 0.0
        per_block = max(LEAST_REQUESTS, int(np.ceil(rate * self._test.block_s)))
        possible = len(at) // per_block // MADE_OF
        return Group(name, at, per_block, possible >= fewest_blocks(self._test.objective, self._test.risk))


def _why(sample: LoadSample, slo: Slo) -> str:
    if sample.outcome is not LoadOutcome.COMPLETED:
        return sample.code or sample.outcome.value
    if not sample.whole:
        return "degraded"
    late = slo.ttft_s is not None and (
        sample.ttft_scheduled_s is None or sample.ttft_scheduled_s > slo.ttft_s
    )
    return "ttft" if late else "itl"
