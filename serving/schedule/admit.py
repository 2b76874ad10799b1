"""Who gets a place, and who enters the engines: a sans-I/O state machine.

    arrive          prepared        a slot frees
    ------> SEATED --------> QUEUED ------------> RUNNING
              |                |                     |
              +---- leave -----+------- leave -------+----> gone

A seat is taken before the body is read, so the bodies and pixels held at any time are bounded too: `max_waiting` bounds
SEATED + QUEUED, shares of it each SLO and workload class (seats.py). An adaptive limit bounds RUNNING (limit.py). Who
enters is decided by length-aware priority (priority.py) and turns (order.py), which bound every wait: with at least L slots,
none held longer than S seconds, a request enters within

    threshold + ceil(N / L) x S           N: the slots given away until its turn, order.py; at most in terms of max_waiting

A request that cannot have its first token in time any more is refused instead: on arrival (if even the shortest could
not), when it is prepared, and when its turn comes. An event that does not fit the state raises AdmissionError and changes nothing.
"""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from math import ceil
from typing import NamedTuple

from serving.schedule.learned import Learned
from serving.schedule.limit import InFlightLimit
from serving.schedule.order import Order
from serving.schedule.priority import Rules, Waiting, waiting
from serving.schedule.seats import Seat, Seats
from toolkit.core.errors import Busy
from toolkit.core.sample import SloClass, WorkloadClass

MAX_RETRY_AFTER_S = 30.0
UNKNOWN_SLOT_S = 1.0
"""Taken for the time in the engines until one request has been there: it only shapes the first Retry-After."""
SLOW = 2.0
"""A first token is late only if it also took that many times the quickest of its kind: an engine that cannot keep a target
even alone would otherwise be cut down to the minimum."""
PLANNED = 0.8
"""Part of a budget that estimates may fill: they are means, and without a margin all would be served just too late or just
in time."""


class Place(Enum):
    """Where a request stands."""

    SEATED = "seated"
    QUEUED = "queued"
    RUNNING = "running"


class AdmissionError(RuntimeError):
    """An event that is illegal in the request's state: a fault of the caller's code."""


class Moves(NamedTuple):
    """What an event sets in motion: who enters the engines, in order, and who is refused, with why. Those refused still
    hold their places until they leave."""

    entered: list[str]
    refused: list[tuple[str, Busy]]


@dataclass(slots=True)
class Running:
    """One request inside the engines."""

    slo_class: SloClass
    short: bool
    entered: float
    judged: bool = False


class Admission:
    """Seats, order and slots. Holds no clock: every event brings `now`, seconds on one monotonic clock."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._seats = Seats(rules)
        self._order = Order(rules.short_tokens)
        self._running: dict[str, Running] = {}
        self._kept = 0  # were inside when the bound on them was set
        self._limit = InFlightLimit(rules.min_in_flight, rules.max_in_flight, rules.adaptive)
        self._slot_s = {short: Learned(0.1, 0.1) for short in (True, False)}
        self._first_s = {short: Learned(0.1, 0.1) for short in (True, False)}
        self._quickest_s = {short: Learned(1.0, 0.002) for short in (True, False)}

    def __repr__(self) -> str:
        return f"<Admission {self.seated} seated, {self.queued} queued, {self.running}/{self.limit} running>"

    @property
    def seated(self) -> int:
        return len(self._seats) - len(self._order)

    @property
    def queued(self) -> int:
        return len(self._order)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def limit(self) -> int:
        """How many may be inside the engines now."""
        return self._limit.value

    @property
    def idle(self) -> bool:
        return not (self._seats or self._running)

    def queued_by_class(self) -> Counter[tuple[WorkloadClass, SloClass]]:
        """Prepared requests that wait for a slot."""
        return Counter((one.workload_class, one.slo_class) for one in self._order)

    def place(self, key: str) -> Place | None:
        """Where a request stands; None when it has not arrived or is gone."""
        if key in self._running:
            return Place.RUNNING
        if key in self._order:
            return Place.QUEUED
        return Place.SEATED if key in self._seats else None

    def arrive(self, key: str, slo_class: SloClass, now: float, deadline: float) -> None:
        """Take a seat. deadline: of its first token. Raises Busy, with Retry-After, when its class is shed (shed), when
        there is none (queue_full), or when even one as short as any that waits would now come too late (queue_too_long)."""
        if self.place(key) is not None:
            raise AdmissionError(f"{key} arrived twice")
        self._shed(slo_class)
        seat = Seat(slo_class, WorkloadClass.UNCLASSIFIED, deadline)
        shortest = waiting(
            self._rules, key, slo_class, seat.workload_class, self._order.shortest, now, deadline
        )
        if full := self._seats.full_for(seat):
            raise self._no_seat(full, shortest, now)
        if late := self._too_late(shortest, now):
            raise late
        self._seats.take(key, seat)

    def sort(self, key: str, workload_class: WorkloadClass, now: float) -> None:
        """What a seated request asks is known, or known better. Raises Busy when its class is shed (shed) or has no seat
        left (queue_full)."""
        if self.place(key) is not Place.SEATED:
            raise AdmissionError(f"{key} is {self.place(key)}, not seated")
        seat = self._seats[key]
        if workload_class is seat.workload_class:
            return
        self._shed(workload_class)
        if full := self._seats.full_of(workload_class):
            unmeasured = waiting(
                self._rules, key, seat.slo_class, workload_class, self._rules.short_tokens, now, seat.deadline
            )
            raise self._no_seat(full, unmeasured, now)
        self._seats.free(key)
        self._seats.take(key, Seat(seat.slo_class, workload_class, seat.deadline))

    def prepared(self, key: str, workload_class: WorkloadClass, tokens: int, now: float) -> Moves:
        """Queue for the engines. tokens: text + image + max_tokens x n. Raises Busy when its class has no seat
        (queue_full) or its first token would come too late (queue_too_long)."""
        self.sort(key, workload_class, now)
        seat = self._seats[key]
        one = waiting(self._rules, key, seat.slo_class, workload_class, tokens, now, seat.deadline)
        if late := self._too_late(one, now):
            raise late
        self._order.put(one)
        return self._fill(now)

    def answered(self, key: str, first_token: float, now: float) -> Moves:
        """A running request had its first token then; only the first call counts."""
        one = self._running.get(key)
        if one is None or one.judged:
            return Moves([], [])
        one.judged = True
        took = max(0.0, first_token - one.entered)
        quickest = self._quickest_s[one.short].read(now)
        self._quickest_s[one.short].add(took, now)
        self._first_s[one.short].add(took, now)
        alone_s = took if quickest is None else quickest
        target = max(self._rules.treatments[one.slo_class].target_s, SLOW * alone_s)
        if took <= target:
            self._limit.in_time(took / target, len(self._running))
        else:
            self._limit.too_much(one.entered, now)
        return self._fill(now)

    def overloaded(self, key: str, now: float) -> None:
        """The engines refused a running request (429, 503), or gave no first token within its budget."""
        one = self._running.get(key)
        if one is not None and not one.judged:
            one.judged = True
            self._first_s[one.short].add(max(0.0, now - one.entered), now)
            self._limit.too_much(one.entered, now)

    def leave(self, key: str, now: float) -> Moves:
        """End in any state, once or often."""
        self._seats.free(key)
        self._order.remove(key)
        one = self._running.pop(key, None)
        if one is not None:
            self._slot_s[one.short].add(max(0.0, now - one.entered), now)
        return self._fill(now)

    def retune(self, rules: Rules, now: float) -> Moves:
        """Other rules from now on. Whoever has a place keeps it; bounds that are lower now hold for those who come."""
        self._rules = rules
        self._seats.retune(rules)
        self._limit.retune(rules.min_in_flight, rules.max_in_flight, rules.adaptive)
        self._order.retune(rules)
        self._kept = len(self._running)
        return self._fill(now)

    def check(self) -> None:
        """Raise AssertionError unless the books balance: bounds hold, nobody stands in two places, no slot idles beside a queue."""
        self._seats.check()
        self._order.check()
        assert len(self._running) <= max(self._rules.max_in_flight, self._kept), self
        assert self._rules.max_in_flight >= self.limit >= 1, self
        assert all(one.key in self._seats for one in self._order), self
        assert not any(key in self._seats for key in self._running), self
        assert not self._order or len(self._running) >= self.limit, self

    def _fill(self, now: float) -> Moves:
        moves = Moves([], [])
        while self._order and len(self._running) < self._limit.value:
            one = self._order.take(now)
            spoken_for = self._running or self._order
            if now + (self._first_token_s(one.short, now) if spoken_for else 0.0) > one.deadline:
                moves.refused.append((one.key, self._late(one, now, 0.0)))
                continue
            self._seats.free(one.key)
            self._running[one.key] = Running(one.slo_class, one.short, now)
            moves.entered.append(one.key)
        return moves

    def _shed(self, asked: SloClass | WorkloadClass) -> None:
        if asked in self._rules.shed:
            raise Busy(
                f"Requests of class {asked} are not taken for now, by order of the operator.",
                code="shed",
                retry_after_s=self._rules.shed_retry_s,
            )

    def _too_late(self, one: Waiting, now: float) -> Busy | None:
        """Never while the engines are empty: what was learned may be wrong, and only a request can tell."""
        empty = not self._running and not self._order
        if empty or not any(learned.read(now) for learned in self._slot_s.values()):
            return None
        wait_s = self._wait_s(one, now)
        late = wait_s + self._first_token_s(one.short, now) > PLANNED * (one.deadline - now)
        return self._late(one, now, wait_s) if late else None

    def _late(self, one: Waiting, now: float, wait_s: float) -> Busy:
        first_s, left_s = self._first_token_s(one.short, now), max(0.0, one.deadline - now)
        return Busy(
            f"{left_s:.1f} s of the TTFT budget are left; the requests that go before this one take about {wait_s:.1f} s,"
            f" its first token {first_s:.1f} s more.",
            code="queue_too_long",
            retry_after_s=_seconds(wait_s + first_s - PLANNED * left_s),
            hop="wait",
        )

    def _no_seat(self, full: str, one: Waiting, now: float) -> Busy:
        lacking_s = (
            self._wait_s(one, now) + self._first_token_s(one.short, now) - max(0.0, one.deadline - now)
        )
        return Busy(
            f"No room to wait: {full}.",
            retry_after_s=_seconds(max(self._slot_frees_s(one.short, now), lacking_s)),
        )

    def _wait_s(self, one: Waiting, now: float) -> float:
        """About how long it would wait for a slot: for the first that frees, then for those that go before it."""
        if len(self._running) < self._limit.value and not self._order:
            return 0.0
        shorts = sum(running.short for running in self._running.values())
        longs = len(self._running) - shorts
        held_s = shorts * self._slot_frees_s(True, now) + longs * self._slot_frees_s(False, now)
        first_s = held_s / max(1, len(self._running))
        return first_s + self._order.wait_s(one, now, lambda short: self._slot_frees_s(short, now))

    def _slot_frees_s(self, short: bool, now: float) -> float:
        """How often a slot frees when all are held by requests of that length."""
        mine, others = self._slot_s[short].read(now), self._slot_s[not short].read(now)
        held_s = mine if mine is not None else others if others is not None else UNKNOWN_SLOT_S
        return held_s / self._limit.value

    def _first_token_s(self, short: bool, now: float) -> float:
        """About what the engines would take: the quickest of late while they are empty, the usual while all slots are
        held; 0 while nothing is known. An engine is thus never left idle because it was slow under load."""
        usual, quickest = self._first_s[short].read(now) or 0.0, self._quickest_s[short].read(now) or 0.0
        load = min(1.0, len(self._running) / self._limit.value)
        return quickest + max(0.0, usual - quickest) * load


def _seconds(lacking_s: float) -> float:
    return float(min(MAX_RETRY_AFTER_S, max(1, ceil(lacking_s))))
