"""Who gets a place, and who enters the engines: a sans-I/O state machine.

    arrive          prepared       a slot and a lease
    ------> SEATED --------> QUEUED ------------> RUNNING
              |                |                     |
              +---- leave -----+------- leave -------+----> gone

A seat is taken before the body is read, so the bodies and pixels held at any time are bounded too: `max_waiting` bounds
SEATED + QUEUED, shares of it each SLO and workload class (seats.py). An adaptive limit bounds RUNNING (limit.py), a window
of each decode those before their first token there (windows.py), and so do
KV leases (lease.py): whoever enters has a decode and all pages there that it may use. Who enters is decided by length-aware
priority (priority.py), turns (order.py) and what fits (entry.py), which bound every wait: with L slots, no window narrower, none
held longer than S seconds, and decodes where at least M of the largest leases fit at once beside what others use, a request enters within

    threshold + ceil(N / min(L, M)) x S   N: the turns until its own, order.py; at most in terms of max_waiting

For let one due be waiting all through S seconds, after which nothing fits. Lacking a slot: all L inside entered meanwhile;
those who passed had a slot each besides M. Lacking pages: on the reserved decode less than one largest lease is free, so M
have been taken there meanwhile. Either way min(L, M) turns were taken, which none but the due have. Without leases M is no
bound. Should the limit go down, those who passed before stay for S more at most.

A request that cannot have its first token in time any more is refused instead: on arrival (if even the shortest could
not), when it is prepared, and when its turn comes. An event that does not fit the state raises AdmissionError and changes nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from serving.schedule.bookings import SentAway
from serving.schedule.entry import next_in
from serving.schedule.lateness import Late, Lateness
from serving.schedule.lease import Lease, Leases, Need
from serving.schedule.levels import Levels
from serving.schedule.limit import InFlightLimit
from serving.schedule.order import Order
from serving.schedule.place import AdmissionError as AdmissionError
from serving.schedule.place import Moves as Moves
from serving.schedule.place import Place as Place
from serving.schedule.place import Running
from serving.schedule.pool import Report
from serving.schedule.priority import Rules, Waiting, waiting
from serving.schedule.seats import Seat, Seats
from serving.schedule.shares import Shares
from serving.schedule.windows import Windows
from toolkit.core.errors import Busy, TooLarge, ToolkitError
from toolkit.core.sample import SloClass, WorkloadClass

SLOW = 2.0
"""A first token is late only if it also took that many times the quickest of its kind: an engine that cannot keep a target
even alone would otherwise be cut down to the minimum."""


class Admission:
    """Seats, order and slots. Holds no clock: every event brings `now`, seconds on one monotonic clock."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._seats = Seats(rules)
        self.shares = Shares(rules.shares)
        self._order = Order(rules, self.shares)
        self._running: dict[str, Running] = {}
        self._kept = 0  # were inside when the bound on them was set
        self._limit = InFlightLimit(rules.min_in_flight, rules.max_in_flight, rules.adaptive)
        self.windows = Windows(rules.min_in_flight, rules.max_in_flight, rules.adaptive)
        self.leases = Leases(rules.lease_cap)
        self._levels = Levels()
        self._needs: dict[str, Need] = {}
        self._lacking: dict[str, float] = {}  # since when there was a slot for it and no room for its KV
        self._late = Lateness(self._order, self.leases, self._limit, self._running, self._lacking)

    def __repr__(self) -> str:
        return f"<Admission {self.seated} seated, {self.queued} queued, {self.running}/{self.limit} running, {self.leases}>"

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
    def lacking(self) -> int:
        """Those queued who have found a slot and no room for their KV."""
        return len(self._lacking)

    def lacked_s(self, key: str, now: float) -> float:
        """Of a request's wait until now, how long it had a slot to take and no room for its KV."""
        if key in self._running:
            return self._running[key].lacked_s
        return now - self._lacking.get(key, now)

    def level(self, key: str) -> int:
        """A running request's priority for the engines, from 0; the highest goes first."""
        return self._running[key].level

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

    def arrive(
        self, key: str, slo_class: SloClass, now: float, deadline: float, lightens: bool = False
    ) -> None:
        """Take a seat. deadline: of its first token. Raises Busy, with Retry-After, when its class is shed (shed), when
        there is none (queue_full), or when even one as short as any that waits would now come too late (queue_too_long).
        lightens: whether it may be made smaller, so that the smallest prompt is what its first token is reckoned by."""
        if self.place(key) is not None:
            raise AdmissionError(f"{key} arrived twice")
        self._shed(slo_class)
        seat = Seat(slo_class, WorkloadClass.UNCLASSIFIED, deadline)
        shortest = waiting(self._rules, key, slo_class, seat.workload_class, self._shortest(), now, deadline)
        if full := self._seats.full_for(seat):
            raise self._late.no_seat(full, shortest, now)
        least = Need(shortest.tokens, 1, 1) if lightens else None
        if late := self._late.too_late(shortest, now, least):
            raise self._late.refusal(late, now)
        self._seats.take(key, seat)

    def sort(self, key: str, workload_class: WorkloadClass, now: float) -> None:
        """What a seated request asks is known, or known better. Raises Busy when its class is shed (shed) or has no seat
        left (queue_full), or when its pool, which was not known on arrival, would let it in too late (queue_too_long)."""
        if self.place(key) is not Place.SEATED:
            raise AdmissionError(f"{key} is {self.place(key)}, not seated")
        seat = self._seats[key]
        if workload_class is seat.workload_class:
            return
        self._shed(workload_class)
        if full := self._seats.full_of(seat.slo_class, workload_class, seat.workload_class):
            unmeasured = waiting(
                self._rules, key, seat.slo_class, workload_class, self._rules.short_tokens, now, seat.deadline
            )
            raise self._late.no_seat(full, unmeasured, now)
        if self._rules.kind_of(workload_class):
            shortest = waiting(
                self._rules, key, seat.slo_class, workload_class, self._shortest(), now, seat.deadline
            )
            if late := self._late.too_late(shortest, now):
                raise self._late.refusal(late, now)
        self._seats.free(key)
        self._seats.take(key, Seat(seat.slo_class, workload_class, seat.deadline))

    def outlook_s(
        self, key: str, workload_class: WorkloadClass, tokens: int, now: float, need: Need
    ) -> float:
        """About the time to a seated request's first token if it was prepared now, so large; 0 where that is not judged."""
        seat = self._seats[key]
        one = waiting(self._rules, key, seat.slo_class, workload_class, tokens, now, seat.deadline)
        return self._late.outlook_s(one, now, need)

    def prepared(
        self, key: str, workload_class: WorkloadClass, tokens: int, now: float, need: Need | None = None
    ) -> Moves:
        """Queue for the engines. tokens: text + image + max_tokens x n; need: of KV, all in one sequence where not given. Raises
        TooLarge when that is more than one may have (kv_lease_exceeded), Busy when its class has no seat (queue_full) or its
        first token would come too late (queue_too_long)."""
        self.sort(key, workload_class, now)
        need = need or Need(tokens)
        self.leases.refuse_too_large(need)
        seat = self._seats[key]
        one = waiting(self._rules, key, seat.slo_class, workload_class, tokens, now, seat.deadline)
        if late := self._late.too_late(one, now, need):
            raise self._late.refusal(late, now)
        self._order.put(one)
        self._needs[key] = need
        return self._fill(now)

    def serve(self, decodes: Mapping[str, float], now: float) -> Moves:
        """Those decodes get requests from now on, by their weights."""
        self.leases.serve(decodes)
        return self._refill(now)

    def told(self, decode: str, report: Report | None, now: float) -> Moves:
        """What an engine says of its KV pool; None: it does not tell."""
        if report is None:
            self.leases.silent(decode)
        else:
            self.leases.report(decode, report)
            self.windows.queue(decode, report.queued, now)
        return self._refill(now)

    def bound(self, pages: Mapping[str, int], until: float, now: float) -> Moves:
        """Only so many pages of each decode are for this gateway's requests, until then (schedule/shared/)."""
        self.leases.bound(pages, until)
        return self._fill(now)

    @property
    def weights(self) -> dict[str, float]:
        """Of the parts of a pool that gateways share: by kind of request, by SLO class where there is one kind."""
        rules = self._rules
        return dict(rules.shares) or {slo.value: one.weight for slo, one in rules.treatments.items()}

    def holding(self) -> Iterator[tuple[str, Lease]]:
        """What every request inside holds, after whose weight it counts for."""
        kinds = bool(self._rules.shares)
        for key, one in self._running.items():
            yield self.shares.kind(key) if kinds else one.slo_class.value, self.leases.lease_of(key)

    def lining_up(self) -> Iterator[tuple[str, Waiting, Need]]:
        """Every request that waits for a slot and a lease, likewise."""
        kinds = bool(self._rules.shares)
        for one in self._order:
            yield one.kind if kinds else one.slo_class.value, one, self._needs[one.key]

    def move(self, key: str, choice: int, decode: str, now: float) -> Moves | None:
        """One choice of a running request goes on at another decode, with its lease. None, and nothing changes, where there is
        no room for it."""
        if not self.leases.move(key, choice, decode):
            return None
        self.windows.enter(key, decode)
        return self._fill(now)

    def answered(self, key: str, first_token: float, now: float) -> Moves:
        """A running request had its first token then; only the first call counts."""
        one = self._running.get(key)
        if one is None or one.judged:
            self.windows.leave(key)
            return self._fill(now)
        one.judged = True
        self._levels.leave(key)
        took = max(0.0, first_token - one.entered)
        alone_s = self._late.learned.first_token(one.short, took, now, one.prompt)
        target = max(self._rules.treatments[one.slo_class].target_s, SLOW * alone_s)
        if took <= target:
            self._limit.in_time(took / target, len(self._running))
            self.windows.in_time(key, took / target)
        else:
            self._too_much(key, one, now)
        return self._fill(now)

    def overloaded(self, key: str, now: float) -> None:
        """The engines refused a running request (429, 503), or gave no first token within its budget."""
        one = self._running.get(key)
        if one is not None and not one.judged:
            one.judged = True
            self._late.learned.no_first_token(one.short, max(0.0, now - one.entered), now)
            self._too_much(key, one, now)

    def leave(self, key: str, now: float) -> Moves:
        """End in any state, once or often. The only place where leases are released."""
        self._seats.free(key)
        self._unqueue(key)
        self.leases.release(key)
        self.windows.leave(key)
        self.shares.release(key)
        self._levels.leave(key)
        one = self._running.pop(key, None)
        if one is not None:
            self._late.learned.left(one.short, max(0.0, now - one.entered), now)
        return self._rejudge(self._fill(now), now)

    def spared(self, error: ToolkitError) -> None:
        """Who was refused with that was answered elsewhere, and will not come again."""
        if isinstance(error, SentAway):
            self._late.bookings.take_back(error.booking)

    def retune(self, rules: Rules, now: float) -> Moves:
        """Other rules from now on. Whoever has a place keeps it; bounds that are lower now hold for those who come."""
        self._rules = rules
        self._seats.retune(rules)
        self._limit.retune(rules.min_in_flight, rules.max_in_flight, rules.adaptive)
        self.windows.retune(rules.min_in_flight, rules.max_in_flight, rules.adaptive)
        self._order.retune(rules)
        self._kept = len(self._running)
        self.leases.cap = rules.lease_cap
        self.shares.retune(rules.shares)
        return self._refill(now)

    def check(self) -> None:
        """Raise AssertionError unless the books balance: bounds hold, nobody stands in two places, who runs and only who runs has
        a lease, no slot idles beside a queue but for lack of KV or of width in a window."""
        self._seats.check()
        self._order.check()
        self.leases.check()
        self.windows.check()
        self.shares.check()
        assert len(self._running) <= max(self._rules.max_in_flight, self._kept), self
        assert self._rules.max_in_flight >= self.limit >= 1, self
        queued = {one.key for one in self._order}
        assert queued == self._needs.keys() >= self._lacking.keys(), self
        assert all(key in self._seats for key in queued), self
        assert not any(key in self._seats for key in self._running), self
        assert self._levels.inside <= self._running.keys(), self
        assert self.leases.holders == self.shares.holders == self._running.keys(), self
        assert self.windows.keys <= self._running.keys(), self
        assert not queued or len(self._running) >= self.limit or self._lacking or self.windows.closed(), self

    def _too_much(self, key: str, one: Running, now: float) -> None:
        if not self.windows.is_narrow(key):
            self._limit.too_much(one.entered, now)
        self.windows.too_much(key, one.entered, now)

    def _fill(self, now: float) -> Moves:
        moves = Moves([], [])
        self.leases.lapse(now)
        self.shares.measure(self._limit.value, self.leases.tokens)
        while self._order and len(self._running) < self._limit.value:
            self.leases.closed = self.windows.closed()
            found = next_in(self._order, self.leases, self._needs, now, self._limit.value)
            if found is None:
                break
            one, decode = found
            self._order.enter(one, now)
            need, since = self._needs[one.key], self._lacking.get(one.key, now)
            self._unqueue(one.key)
            spoken_for = self._running or self._order
            if now + (self._late.first_token_s(one.short, now, need) if spoken_for else 0.0) > one.deadline:
                late = self._late.late(one, now, 0.0, need)
                moves.refused.append((one.key, self._late.refusal(late, now)))
                continue
            self._seats.free(one.key)
            level = self._levels.enter(one.key, one.priority(now, self._rules.short_tokens), one.due, now)
            self._running[one.key] = Running(one.slo_class, one.short, now, now - since, level, need.prompt)
            self.leases.take(one.key, need, decode)
            self.windows.enter(one.key, decode)
            self.shares.hold(one.key, one.kind, one.tokens)
            moves.entered.append(one.key)
        if len(self._running) < self._limit.value:
            fits = self.leases.room(all_windows=True) if self.leases.closed else None
            for one in self._order:
                if fits is None or not fits(self._needs[one.key]):
                    self._lacking.setdefault(one.key, now)
        return moves

    def _rejudge(self, moves: Moves, now: float) -> Moves:
        """A slot has turned, so more is known of how long that takes: who has become certain to be late is told now, not at its
        deadline. The last of a lane first, since each that goes makes room for those before it; who came first may come again first."""
        lost: list[Late] = []
        for one in self._order.lasts():
            last: Waiting | None = one
            while last is not None and (late := self._late.lost(last, now, self._needs[last.key])):
                lost.append(late)
                self._unqueue(last.key)
                last = next((other for other in self._order.lasts() if other.lane == one.lane), None)
        for late in sorted(lost, key=lambda late: late.one.ready):
            moves.refused.append((late.one.key, self._late.refusal(late, now)))
        return moves

    def _refill(self, now: float) -> Moves:
        """Once what one may have has changed: those queued who need more are refused."""
        refused: list[tuple[str, Busy | TooLarge]] = []
        for key, need in list(self._needs.items()):
            try:
                self.leases.refuse_too_large(need)
            except TooLarge as error:
                refused.append((key, error))
                self._unqueue(key)
        entered, late = self._fill(now)
        return Moves(entered, refused + late)

    def _unqueue(self, key: str) -> None:
        self._order.remove(key)
        self._needs.pop(key, None)
        self._lacking.pop(key, None)

    def _shortest(self) -> int:
        """Tokens of the shortest that waits: what one that has just come may be as well. Where only long ones wait, since the
        short ones pass them, one of those."""
        shortest, short = self._order.shortest, self._rules.short_tokens
        passing = shortest > short and any(one.short for one in self._running.values())
        return short if passing else shortest

    def _shed(self, asked: SloClass | WorkloadClass) -> None:
        if asked in self._rules.shed:
            raise Busy(
                f"Requests of class {asked} are not taken for now, by order of the operator.",
                code="shed",
                retry_after_s=self._rules.shed_retry_s,
            )
