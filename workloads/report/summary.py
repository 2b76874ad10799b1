"""Samples -> numbers, per class and together. Pure: the same samples give the same summary, now or next year."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from toolkit.core.sample import SloClass, WorkloadClass
from toolkit.core.slo import Quantile, Slo, attainment, goodput, percentile, quantile
from workloads.record import GENERATOR_LIMIT, LoadOutcome, LoadSample

MIN_SLIP_LIMIT_S = 0.005
SLIP_SHARE_OF_SLO = 0.01  # 1 % of the TTFT that is judged: lateness under that cannot change a verdict
MIN_DELIVERED = 0.99


@dataclass(frozen=True, slots=True)
class Percentiles:
    """None where no sample has the value."""

    p50: Quantile | None
    p95: Quantile | None
    p99: Quantile | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles":
        return cls(quantile(values, 0.5), quantile(values, 0.95), quantile(values, 0.99))


@dataclass(frozen=True, slots=True)
class Group:
    """One class of work, or all of them.

    failed: count by code. empty: completed answers without a single token. degraded: completed answers for which something was
    given up, degraded_kept: of these, those within their limits; neither attainment nor goodput counts them as kept. ttft, ttft_sent: of completed requests,
    from the intended arrival and from the send. attainment: share of offered requests that kept their SLO class's
    promise (TTFT from the intended arrival, and ITL); ttft_attainment: TTFT alone. goodput: good requests/s.
    attainment_sent, goodput_sent: the same with TTFT from the actual send: what the server kept.
    """

    name: str
    slo_classes: tuple[SloClass, ...]
    offered: int
    sent: int
    completed: int
    failed: Mapping[str, int]
    empty: int
    degraded: int
    degraded_kept: int
    ttft: Percentiles
    ttft_sent: Percentiles
    itl: Percentiles
    tokens: int
    tokens_per_s: float
    attainment: float | None
    ttft_attainment: float | None
    goodput: float
    attainment_sent: float | None
    goodput_sent: float

    @property
    def failures(self) -> int:
        return sum(self.failed.values())


@dataclass(frozen=True, slots=True)
class Generator:
    """The load generator's own error. Slips are plain estimates: of a verdict on ourselves we want the worse side.

    delivered: requests begun inside the window (or within the slip limit after it) / requests due in it.
    """

    slip_p50_s: float
    slip_p99_s: float
    slip_max_s: float
    slip_limit_s: float
    delivered: float
    cpu_share: float

    @property
    def saturated(self) -> bool:
        """Whether the generator, not the server, may have made the numbers."""
        return self.slip_p99_s > self.slip_limit_s or self.delivered < MIN_DELIVERED


@dataclass(frozen=True, slots=True)
class Returned:
    """Attempts after the first, which are counted nowhere else. admitted: taken, not refused again. good: kept the SLO."""

    came_back: int
    admitted: int
    good: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Of first attempts. window_s: the offered window. measured_s: from the start to the last answer."""

    window_s: float
    measured_s: float
    interrupted: bool
    groups: tuple[Group, ...]
    total: Group
    generator: Generator
    returned: Returned

    @property
    def every(self) -> tuple[Group, ...]:
        """The classes, then all together."""
        return (*self.groups, self.total)


def summarise(
    samples: Sequence[LoadSample],
    slos: Mapping[SloClass, Slo],
    window_s: float,
    measured_s: float,
    interrupted: bool,
    cpu_share: float,
) -> Summary:
    """cpu_share: CPU seconds of this process per second of the run (1 is one core).

    A client that comes back is no offer more, and the wait it was told is not the server's: offer, percentiles and goodput
    are those of first attempts.
    """
    again = [sample for sample in samples if not sample.first]
    samples = [sample for sample in samples if sample.first]
    window_s, measured_s = max(window_s, 1e-9), max(measured_s, window_s, 1e-9)
    present = [name for name in WorkloadClass if any(s.workload_class is name for s in samples)]
    groups = tuple(
        _group(name.value, [s for s in samples if s.workload_class is name], slos, window_s, measured_s)
        for name in present
    )
    total = _group("all", samples, slos, window_s, measured_s)
    generator = _generator(samples, slos, window_s, cpu_share)
    returned = Returned(
        len(again), sum(sample.admitted for sample in again), sum(good(sample, slos) for sample in again)
    )
    return Summary(window_s, measured_s, interrupted, groups, total, generator, returned)


def good(sample: LoadSample, slos: Mapping[SloClass, Slo]) -> bool:
    """Whether the request was answered as it was asked and kept its class's whole promise."""
    return sample.whole and slos[sample.slo_class].met(sample.ttft_scheduled_s, sample.itl_s)


def _group(
    name: str, samples: Sequence[LoadSample], slos: Mapping[SloClass, Slo], window_s: float, measured_s: float
) -> Group:
    completed = [s for s in samples if s.completed]
    whole = [s for s in completed if s.whole]
    kept = sum(good(s, slos) for s in whole)
    kept_sent = sum(slos[s.slo_class].met(s.ttft_s, s.itl_s) for s in whole)
    kept_ttft = sum(Slo(ttft_s=slos[s.slo_class].ttft_s).met(s.ttft_scheduled_s, ()) for s in whole)
    less = [s for s in completed if not s.whole]
    tokens = sum(s.tokens for s in completed)
    return Group(
        name=name,
        slo_classes=tuple(c for c in SloClass if any(s.slo_class is c for s in samples)),
        offered=len(samples),
        sent=sum(s.sent_s is not None and s.outcome is not LoadOutcome.UNSENT for s in samples),
        completed=len(completed),
        failed=dict(sorted(Counter(s.code or s.outcome.value for s in samples if not s.completed).items())),
        empty=sum(not s.token_times_s for s in completed),
        degraded=len(less),
        degraded_kept=sum(slos[s.slo_class].met(s.ttft_scheduled_s, s.itl_s) for s in less),
        ttft=Percentiles.of(_known(s.ttft_scheduled_s for s in completed)),
        ttft_sent=Percentiles.of(_known(s.ttft_s for s in completed)),
        itl=Percentiles.of([gap for s in completed for gap in s.itl_s]),
        tokens=tokens,
        tokens_per_s=tokens / measured_s,
        attainment=attainment(kept, len(samples)),
        ttft_attainment=attainment(kept_ttft, len(samples)),
        goodput=goodput(kept, window_s),
        attainment_sent=attainment(kept_sent, len(samples)),
        goodput_sent=goodput(kept_sent, window_s),
    )


def _generator(
    samples: Sequence[LoadSample], slos: Mapping[SloClass, Slo], window_s: float, cpu_share: float
) -> Generator:
    slips = _known(s.slip_s for s in samples)
    judged = [limit for limit in (slos[s.slo_class].ttft_s for s in samples) if limit is not None]
    limit_s = max(MIN_SLIP_LIMIT_S, SLIP_SHARE_OF_SLO * min(judged)) if judged else MIN_SLIP_LIMIT_S
    in_time = sum(
        s.sent_s is not None and s.sent_s <= window_s + limit_s and s.code != GENERATOR_LIMIT for s in samples
    )
    return Generator(
        slip_p50_s=percentile(slips, 0.5) if slips else 0.0,
        slip_p99_s=percentile(slips, 0.99) if slips else 0.0,
        slip_max_s=max(slips, default=0.0),
        slip_limit_s=limit_s,
        delivered=in_time / len(samples) if samples else 1.0,
        cpu_share=cpu_share,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
