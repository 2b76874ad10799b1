"""What a cap on KV leases does to whom: the article's table (section 4.2) from recorded runs, and the cap to take. Pure.

Each cap is run several times, taking turns, with a load of short and long requests. Per cap:

    long success    completed long requests / those offered
    short TTFT P95  from the intended arrival; who has no first token counts as later than any
    pool use        tokens leased / tokens of all pools, mean over pages of /metrics
    KV binds        share of the pages on which somebody had found a slot free and no room for its KV
    slots bind      share of the others on which somebody waited: another cap cannot change that wait

Intervals are 95 %, a block bootstrap over windows of time (surge_figures.py).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from toolkit.core import names
from toolkit.core.sample import WorkloadClass
from workloads.record import LoadOutcome, LoadSample
from workloads.scrape import named
from workloads.surge_figures import Block, Interval, Shot, attainment, blocks, interval

CAPS = (0.30, 0.15, 0.08)
"""The article's."""

LONG_LOSS = 0.02
"""Part of the long requests that a smaller cap may cost: the article took 15 %, which lost 0.2 points, and not 8 %, which lost 14."""

LEAST_BOUND = 0.05
OVER_CAP = "kv_lease_exceeded"


@dataclass(frozen=True, slots=True)
class Split:
    """Whose classes are the short ones and whose the long."""

    short: frozenset[WorkloadClass]
    long: frozenset[WorkloadClass]


@dataclass(frozen=True, slots=True)
class Pages:
    """What the gateway's pages said during one run; see above. pages: how many were read."""

    pages: int
    pool_use: float
    kv_binds: float
    slots_bind: float


@dataclass(frozen=True, slots=True)
class Leg:
    """One run at one cap."""

    cap: float
    seconds: float
    samples: Sequence[LoadSample]
    pages: Pages


@dataclass(frozen=True, slots=True)
class Row:
    """One cap. long_ended, short_ended: how many ended how: completed, or the code of what they met."""

    cap: float
    runs: int
    long_offered: int
    long_success: Interval
    short_offered: int
    short_ttft_p95_s: Interval
    pool_use: float
    kv_binds: float
    slots_bind: float
    long_ended: Mapping[str, int] = field(default_factory=dict)
    short_ended: Mapping[str, int] = field(default_factory=dict)

    @property
    def over_cap(self) -> int:
        """Long requests that were refused for their size: no wait would have helped them."""
        return self.long_ended.get(OVER_CAP, 0)


@dataclass(frozen=True, slots=True)
class Advice:
    """The cap to take, and why; None where the runs do not say."""

    cap: float | None
    why: str


def read_pages(records: Iterable[Mapping[str, object]]) -> Pages:
    """From metrics.jsonl: the pages of the target, which must be a gateway of ours; others count as nothing."""
    seen: list[tuple[float, bool, bool]] = []
    for record in records:
        values = record.get("values")
        if record.get("source") != "target" or not isinstance(values, Mapping):
            continue
        pool = sum(named(values, (names.KV_POOL.name,)))
        if not pool:
            continue
        use = sum(named(values, (names.KV_LEASED.name,))) / pool
        lack = sum(named(values, (names.KV_WAITING.name,))) > 0
        seen.append((use, lack, not lack and sum(named(values, (names.WAITING.name,))) > 0))
    if not seen:
        return Pages(0, math.nan, math.nan, math.nan)
    use, kv, slots = (float(np.mean(column)) for column in zip(*seen, strict=True))
    return Pages(len(seen), use, kv, slots)


def row(legs: Sequence[Leg], split: Split, rng: Generator) -> Row:
    """The figures of all runs at one cap. Raises ValueError where nothing short, or nothing long, was offered."""
    short, long = ([_blocks(leg, classes) for leg in legs] for classes in (split.short, split.long))
    offered = [sum(block.offered for run in runs for block in run) for runs in (short, long)]
    if not all(offered):
        raise ValueError(
            "the runs hold no short requests" if not offered[0] else "the runs hold no long requests"
        )
    shorts, longs = ([block for run in runs for block in run] for runs in (short, long))
    weights = [leg.pages.pages for leg in legs]
    pool_use, kv, slots = (
        _mean([getattr(leg.pages, name) for leg in legs], weights)
        for name in ("pool_use", "kv_binds", "slots_bind")
    )
    return Row(
        cap=legs[0].cap,
        runs=len(legs),
        long_offered=offered[1],
        long_success=interval(longs, attainment, rng),
        short_offered=offered[0],
        short_ttft_p95_s=interval(shorts, _ttft_p95, rng),
        pool_use=pool_use,
        kv_binds=kv,
        slots_bind=slots,
        long_ended=_ended(legs, split.long),
        short_ended=_ended(legs, split.short),
    )


def advise(rows: Sequence[Row], long_loss: float = LONG_LOSS) -> Advice:
    """Of the caps that cost at most `long_loss` of the long requests the one with the lowest P95 for short ones; the
    largest of those whose intervals hold that P95, since a larger one refuses less."""
    bound = max(rows, key=lambda one: one.kv_binds if one.runs else 0.0)
    if math.isnan(bound.kv_binds):
        return Advice(
            None, "the target tells nothing of its KV pools, so nothing shows whether blocks were ever short."
        )
    if bound.kv_binds < LEAST_BOUND:
        why = "slots were" if max(one.slots_bind for one in rows) >= LEAST_BOUND else "nothing was"
        return Advice(
            None,
            f"somebody waited for KV in {bound.kv_binds:.0%} of the time, under {LEAST_BOUND:.0%} ({why} short): no cap can"
            " matter for this load. Raise its rate or lengths, or the limit of requests in flight, or take a smaller pool.",
        )
    best = max(one.long_success.value for one in rows)
    fair = [one for one in rows if best - one.long_success.value <= long_loss]
    quickest = min(fair, key=lambda one: one.short_ttft_p95_s.value)
    p95 = quickest.short_ttft_p95_s.value
    alike = [one for one in fair if one.short_ttft_p95_s.low <= p95 <= one.short_ttft_p95_s.high]
    chosen = max([*alike, quickest], key=lambda one: one.cap)
    dearer = [one for one in rows if one not in fair]
    costs = "".join(
        f"; {one.cap:.0%} costs {100 * (best - one.long_success.value):.1f} points of the long ones"
        for one in dearer
    )
    told = "never" if math.isinf(p95) else f"{chosen.short_ttft_p95_s.value:.2f} s"
    return Advice(
        chosen.cap,
        f"{chosen.long_success.value:.1%} of long requests complete, short TTFT P95 {told}{costs}.",
    )


def _blocks(leg: Leg, classes: frozenset[WorkloadClass]) -> list[Block]:
    shots = [
        Shot(
            at_s=sample.intended_s,
            workload_class=sample.workload_class,
            good=sample.completed,
            completed=sample.completed,
            ttft_s=math.inf if sample.ttft_scheduled_s is None else sample.ttft_scheduled_s,
        )
        for sample in leg.samples
        if sample.first and sample.workload_class in classes
    ]
    return blocks(shots, 0.0, leg.seconds)


def _ttft_p95(over: Sequence[Block]) -> float:
    """By rank: no value is made up between one that came and one that did not."""
    seen = np.concatenate([block.ttft_s for block in over]) if over else np.array([])
    return float(np.percentile(seen, 95, method="inverted_cdf")) if seen.size else math.nan


def _ended(legs: Sequence[Leg], classes: frozenset[WorkloadClass]) -> dict[str, int]:
    ends = Counter(
        "completed" if sample.outcome is LoadOutcome.COMPLETED else sample.code or str(sample.outcome)
        for leg in legs
        for sample in leg.samples
        if sample.first and sample.workload_class in classes
    )
    return dict(ends.most_common())


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    pages = sum(weights)
    total = sum(value * weight for value, weight in zip(values, weights, strict=True) if weight)
    return total / pages if pages else math.nan
