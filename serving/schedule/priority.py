"""What a waiting request is worth: the length-aware priority of the article's section 2.3. Pure.

    priority = wait coefficient x length coefficient                              (no unit; the highest goes first)

    wait coefficient   = weight x (1 + waited / threshold)         waited: seconds since it was ready
    length coefficient = short_tokens / (short_tokens + tokens)    1 for nothing, 1/2 at short_tokens, towards 0

    tokens = text tokens + image tokens + max_tokens x n           what it may hold in the engines at most

A request of up to short_tokens (1024) is short, any other long. Weight and thresholds are the SLO class's (defaults:
realtime 4, 0.15 s short and 0.3 s long; standard 1, 0.5 s and 1.5 s; batch 0.25, 30 s and 60 s). The product alone starves
long requests beside a stream of short ones, and with the article's aim (short ones pass a batch of long ones) short ones
too once long ones have waited for long. So whoever has waited past its threshold leaves the comparison and is *due*: due
requests go before all others, kinds in turns (order.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolkit.core.sample import SloClass, WorkloadClass

NOT_OF_IMAGES = frozenset({WorkloadClass.TEXT_ONLY, WorkloadClass.UNCLASSIFIED})

SHORT_TURNS = 4.0
"""Turns of a short lane for one of its class's long lane. With one each, short requests that come more often than long ones can
enter queue behind them: measured in virtual time with KV as what lacks, their P95 wait was 50 s, and 0.9 s with four."""

Lane = tuple[SloClass, bool, str]
"""SLO class, short or not, kind."""


@dataclass(frozen=True, slots=True)
class Treatment:
    """What one SLO class means to the scheduler.

    weight: factor of the wait coefficient, and share of the turns. short_wait_s, long_wait_s: the thresholds. room_share:
    part of the waiting room that it may take. target_s: first tokens later than this after entering the engines are late.
    """

    weight: float = 1.0
    short_wait_s: float = 0.5
    long_wait_s: float = 1.5
    room_share: float = 1.0
    target_s: float = 1.5


@dataclass(frozen=True, slots=True)
class Rules:
    """All that the scheduler is told. workload_share: part of an SLO class's seats that one workload class may take. lease_cap: part
    of a decode's KV pool that one request may have. shed: classes that are refused at once, for shed_retry_s seconds each. kinds,
    shares: who shares the decodes, by which weights (shares.py)."""

    treatments: Mapping[SloClass, Treatment]
    max_in_flight: int
    max_waiting: int
    min_in_flight: int = 1
    adaptive: bool = False
    short_tokens: int = 1024
    workload_share: float = 1.0
    lease_cap: float = 0.15
    shed: frozenset[SloClass | WorkloadClass] = frozenset()
    shed_retry_s: float = 10.0
    kinds: Mapping[WorkloadClass, str] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)

    def kind_of(self, workload_class: WorkloadClass) -> str:
        """The kind of a request whose images have not been looked at; empty where they may make it another."""
        may_be = (
            {workload_class}
            if workload_class is WorkloadClass.TEXT_ONLY
            else set(WorkloadClass) - NOT_OF_IMAGES
        )
        kinds = {self.kinds.get(one, "") for one in may_be}
        return kinds.pop() if len(kinds) == 1 else ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A prepared request that waits. Instants on the monotonic clock, seconds. tokens: text + image + max_tokens x n."""

    key: str
    slo_class: SloClass
    workload_class: WorkloadClass
    tokens: int
    short: bool
    ready: float
    deadline: float
    weight: float
    threshold_s: float
    kind: str = ""

    @property
    def lane(self) -> Lane:
        """Those who share a threshold and a part of the decodes stand in one lane."""
        return self.slo_class, self.short, self.kind

    @property
    def turns(self) -> float:
        """Weight of its lane where lanes take turns."""
        return self.weight * (SHORT_TURNS if self.short else 1.0)

    @property
    def due(self) -> float:
        """From when on it goes before all that are not due."""
        return self.ready + self.threshold_s

    def priority(self, now: float, short_tokens: int) -> float:
        """The formula above."""
        wait = self.weight * (1.0 + max(0.0, now - self.ready) / self.threshold_s)
        return wait * short_tokens / (short_tokens + self.tokens)


def waiting(
    rules: Rules,
    key: str,
    slo_class: SloClass,
    workload_class: WorkloadClass,
    tokens: int,
    ready: float,
    deadline: float,
) -> Waiting:
    """A request as the rules see it."""
    treatment = rules.treatments[slo_class]
    short = tokens <= rules.short_tokens
    return Waiting(
        key,
        slo_class,
        workload_class,
        tokens,
        short,
        ready,
        deadline,
        treatment.weight,
        treatment.short_wait_s if short else treatment.long_wait_s,
        rules.kinds.get(workload_class, ""),
    )
