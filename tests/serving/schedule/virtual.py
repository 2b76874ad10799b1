"""The scheduler in virtual time: arrivals go in, what became of each comes out. No clock, no loop, no sleeping."""

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import ceil, floor, inf

from serving.schedule.admit import Admission, Moves
from serving.schedule.lease import Need
from serving.schedule.pool import Report
from serving.schedule.priority import SHORT_TURNS, Rules, Treatment
from toolkit.core.errors import Busy, TooLarge, ToolkitError
from toolkit.core.sample import SloClass, WorkloadClass

FIFO_TOKENS = 10**9
"""short_tokens at which all are short: one lane and, with no threshold to speak of, first in first out."""


def rules(max_in_flight: int = 8, max_waiting: int = 10**6, **fields) -> Rules:
    """Rules with the defaults of serve.toml's classes, whatever else a test says."""
    treatments = {
        SloClass.REALTIME: Treatment(4.0, 0.15, 0.3, 1.0, 0.4),
        SloClass.STANDARD: Treatment(),
        SloClass.BATCH: Treatment(0.25, 30.0, 60.0, 1.0, 150.0),
    }
    return Rules(**{"treatments": treatments, **fields}, max_in_flight=max_in_flight, max_waiting=max_waiting)


def fifo(max_in_flight: int = 8, **fields) -> Rules:
    """First in, first out, by the same code."""
    at_once = {slo: Treatment(short_wait_s=1e-9) for slo in SloClass}
    return rules(max_in_flight, **{"treatments": at_once, **fields}, short_tokens=FIFO_TOKENS)


@dataclass
class Ask:
    """One request to come. tokens: its length; hold_s: in the engines; first_s: to its first token there, of hold_s. need: of
    KV, where that is not one sequence of its length."""

    at: float
    tokens: int = 100
    hold_s: float = 1.0
    first_s: float = 0.0
    budget_s: float = inf
    slo_class: SloClass = SloClass.STANDARD
    workload_class: WorkloadClass = WorkloadClass.TEXT_ONLY
    need: Need | None = None


@dataclass
class Fate:
    """What became of it; instants, None where it did not get that far."""

    ask: Ask
    number: int
    entered: float | None = None
    first: float | None = None
    ended: float | None = None
    refused: ToolkitError | None = None
    refused_at: float | None = None
    decode: str | None = None
    lacked_s: float = 0.0
    timed_out: bool = False

    @property
    def wait_s(self) -> float:
        return inf if self.entered is None else self.entered - self.ask.at

    @property
    def good(self) -> bool:
        """A first token within its budget."""
        return self.first is not None and self.first - self.ask.at <= self.ask.budget_s


Engines = Callable[[Ask, float], tuple[float, float]]
"""Given a request that enters now: seconds to its first token, seconds to its end."""


@dataclass
class Prefill:
    """Engines with one prefill that works on one prompt after the other, and a decode with room for all."""

    token_s: float
    free_at: float = 0.0
    longest: float = field(default=0.0)

    def __call__(self, ask: Ask, now: float) -> tuple[float, float]:
        self.free_at = max(now, self.free_at) + ask.tokens * self.token_s
        first_s = self.free_at - now
        return first_s, first_s + ask.hold_s


def pool(tokens: int, page_size: int = 1, used: int = 0, stamp: object = 0) -> Report:
    """What an engine says."""
    return Report(tokens, page_size, 1, used, stamp)


Looks = Sequence[tuple[float, str, Report]]
"""(instant, decode, what it says then)."""


def run(
    told: Rules,
    asks: Sequence[Ask],
    engines: Engines | None = None,
    decodes: Mapping[str, Report] | None = None,
    looks: Looks = (),
    comes_back: Callable[[Fate, float], Ask | None] = lambda *_: None,
    lighten: Callable[[Admission, Fate, float], Ask] | None = None,
) -> list[Fate]:
    """Play all to the end. The books are checked after every event, or, of a long play, every twentieth. decodes: whose pools
    are known from the beginning; none: no leases. comes_back: what follows a refusal; those fates come last.
    lighten: what is asked of the engines once a request is prepared."""
    admission = Admission(told)
    for name, report in (decodes or {}).items():
        admission.told(name, report, 0.0)
    admission.serve(dict.fromkeys(decodes or (), 1.0), 0.0)
    work = engines or (lambda ask, _: (ask.first_s, ask.hold_s))
    fates = {str(number): Fate(ask, number) for number, ask in enumerate(asks)}
    order = count()
    events: list[tuple[float, int, str, str]] = [
        (fate.ask.at, next(order), "arrive", key) for key, fate in fates.items()
    ]
    events += [(when, next(order), "look", str(number)) for number, (when, _, _) in enumerate(looks)]
    heapq.heapify(events)

    def at(when: float, what: str, key: str) -> None:
        heapq.heappush(events, (when, next(order), what, key))

    def move(moves: Moves, now: float) -> None:
        for key in moves.entered:
            fate = fates[key]
            fate.entered = now
            fate.decode = admission.leases.place(key)
            fate.lacked_s = admission.lacked_s(key, now)
            first_s, whole_s = work(fate.ask, now)
            if now + first_s <= fate.ask.at + fate.ask.budget_s:
                at(now + first_s, "first", key)
                at(now + whole_s, "end", key)
            else:
                at(fate.ask.at + fate.ask.budget_s, "late", key)
        for key, error in moves.refused:
            refuse(key, error, now)

    def refuse(key: str, error: ToolkitError, now: float) -> None:
        fates[key].refused, fates[key].refused_at = error, now
        move(admission.leave(key, now), now)
        again = comes_back(fates[key], now)
        if again is not None:
            number = len(fates)
            fates[str(number)] = Fate(again, number)
            at(again.at, "arrive", str(number))

    step = 0
    while events:
        step += 1
        now, _, what, key = heapq.heappop(events)
        if what == "look":
            _, name, report = looks[int(key)]
            move(admission.told(name, report, now), now)
            continue
        fate = fates[key]
        deadline = fate.ask.at + fate.ask.budget_s
        if what == "arrive":
            try:
                admission.arrive(key, fate.ask.slo_class, now, deadline, lighten is not None)
                fate.ask = lighten(admission, fate, now) if lighten is not None else fate.ask
                move(
                    admission.prepared(key, fate.ask.workload_class, fate.ask.tokens, now, fate.ask.need), now
                )
            except (Busy, TooLarge) as error:
                refuse(key, error, now)
            else:
                if fate.entered is None and deadline < inf:
                    at(deadline, "expire", key)
        elif what == "first":
            fate.first = now
            move(admission.answered(key, now, now), now)
        elif what == "late":
            fate.timed_out = True
            admission.overloaded(key, now)
            move(admission.leave(key, now), now)
        elif what == "end":
            fate.ended = now
            move(admission.leave(key, now), now)
        elif fate.entered is None and fate.refused is None:
            fate.timed_out = True
            move(admission.leave(key, now), now)
        if len(asks) <= 100 or step % 20 == 0:
            admission.check()
    assert admission.idle
    assert not admission.leases.holders
    assert not any(pool.leased for pool in admission.leases.pools.values())
    return list(fates.values())


def lane(ask):
    return ask.slo_class, ask.tokens <= 1024


def bound(fate, fates, told, slots):
    """admit.py: threshold + ceil(N / slots) x longest, N from order.py; slots: those, or largest leases, that fit at once."""
    mine = told.treatments[fate.ask.slo_class]
    threshold_s = mine.short_wait_s if lane(fate.ask)[1] else mine.long_wait_s
    due = fate.ask.at + threshold_s
    place = 1 + sum(
        1
        for other in fates
        if lane(other.ask) == lane(fate.ask)
        and (other.ask.at, other.number) < (fate.ask.at, fate.number)
        and other.entered >= due
    )

    def weight(slo, short):
        return told.treatments[slo].weight * (SHORT_TURNS if short else 1.0)

    turns = place + sum(
        floor(place * weight(slo, short) / weight(*lane(fate.ask))) + 1
        for slo in SloClass
        for short in (True, False)
        if (slo, short) != lane(fate.ask)
    )
    return threshold_s + ceil(turns / slots) * max(other.ask.hold_s for other in fates)


def flood(seed: int, long_load: float, window_s: float, slots: int = 8) -> list[Ask]:
    """Long requests (2 s in the engines) at `long_load` of the slots' capacity for a while, and text requests (0.2 s)
    at a twentieth of it throughout."""
    source = random.Random(seed)
    asks: list[Ask] = []
    for rate, tokens, mean_s, kind in (
        (long_load * slots / 2.0, 4000, 2.0, WorkloadClass.MULTI_IMAGE_LONG),
        (0.05 * slots / 0.2, 300, 0.2, WorkloadClass.TEXT_ONLY),
    ):
        now = source.expovariate(rate)
        while now < window_s:
            hold_s = mean_s * source.uniform(0.5, 1.5)
            asks.append(
                Ask(now, int(tokens * source.uniform(0.5, 1.5)), hold_s, hold_s / 5, workload_class=kind)
            )
            now += source.expovariate(rate)
    return sorted(asks, key=lambda ask: ask.at)


def p95(values: Sequence[float]) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]
