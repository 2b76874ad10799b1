"""Whether a request can still have its first token in time, and when one that cannot should come again. Pure.

The wait is that for the first slot which frees, or room for KV where that is what lacks, and for those that go before it in the
order; then comes the first token itself, as long as that usually takes.
"""

from collections.abc import Mapping
from typing import NamedTuple

from serving.schedule.bookings import Booking, Bookings, SentAway
from serving.schedule.estimate import Estimates
from serving.schedule.lease import Leases, Need
from serving.schedule.limit import InFlightLimit
from serving.schedule.order import Order
from serving.schedule.place import Running
from serving.schedule.priority import Waiting

PLANNED = 0.8
"""Part of a budget that estimates may fill: they are means, and without a margin all would be served just too late or just
in time."""


class Late(NamedTuple):
    """One that is late, and by what; seconds."""

    one: Waiting
    wait_s: float
    first_s: float
    left_s: float


class Lateness:
    """Reads the books of one admission, whose they are. Keeps, itself, when those who were sent away are to come again."""

    def __init__(
        self,
        order: Order,
        leases: Leases,
        limit: InFlightLimit,
        running: Mapping[str, Running],
        lacking: Mapping[str, float],
    ) -> None:
        self.learned = Estimates()
        self.bookings = Bookings()
        self._order = order
        self._leases = leases
        self._limit = limit
        self._running = running
        self._lacking = lacking

    def too_late(self, one: Waiting, now: float, need: Need | None = None) -> Late | None:
        """Whether its first token would usually come too late, by a margin; None where that is not judged."""
        if not self._judges(now):
            return None
        wait_s = self._wait_s(one, now, need)
        late = wait_s + self.first_token_s(one.short, now, need) > PLANNED * (one.deadline - now)
        return self.late(one, now, wait_s, need) if late else None

    def lost(self, one: Waiting, now: float, need: Need) -> Late | None:
        """Of one that waits as the last of its lane: whether even a mean wait ends after its deadline. No margin here: it was let
        in because it would be in time."""
        if not self._running or not self.learned.known(now):
            return None
        wait_s = self._wait_s(one, now, need)
        late = now + wait_s + self.first_token_s(one.short, now, need) > one.deadline
        return self.late(one, now, wait_s, need) if late else None

    def outlook_s(self, one: Waiting, now: float, need: Need) -> float:
        """About the time to its first token if it queued now; 0 where `too_late` would not judge."""
        if not self._judges(now):
            return 0.0
        return self._wait_s(one, now, need) + self.first_token_s(one.short, now, need)

    def late(self, one: Waiting, now: float, wait_s: float, need: Need | None = None) -> Late:
        return Late(one, wait_s, self.first_token_s(one.short, now, need), max(0.0, one.deadline - now))

    def refusal(self, late: Late, now: float) -> SentAway:
        """For one that is sent away: every call books."""
        lacking_s = late.wait_s + late.first_s - PLANNED * late.left_s
        return SentAway(
            f"{late.left_s:.1f} s of the TTFT budget are left, of which {PLANNED:.0%} may be planned with; the requests that go before"
            f" this one take about {late.wait_s:.1f} s, its first token {late.first_s:.1f} s more.",
            self._book(lacking_s, late.one.short, now),
            code="queue_too_long",
            hop="wait",
        )

    def no_seat(self, full: str, one: Waiting, now: float) -> SentAway:
        """For one that is sent away: every call books."""
        lacking_s = self._wait_s(one, now) + self.first_token_s(one.short, now) - max(0.0, one.deadline - now)
        lacking_s = max(self._slot_frees_s(one.short, now), lacking_s)
        return SentAway(f"No room to wait: {full}.", self._book(lacking_s, one.short, now))

    def _judges(self, now: float) -> bool:
        """Never while the engines are empty: what was learned may be wrong, and only a request can tell."""
        return bool(self._running or self._order) and self.learned.known(now)

    def _book(self, lacking_s: float, short: bool, now: float) -> Booking:
        return self.bookings.book(lacking_s, self._slot_frees_s(short, now), now)

    def _wait_s(self, one: Waiting, now: float, need: Need | None = None) -> float:
        """About how long it would wait for a slot: for the first that frees, then for those that go before it."""
        slot = len(self._running) < self._limit.value and not self._order
        if slot and (need is None or self._leases.fits(need)):
            return 0.0
        shorts = sum(running.short for running in self._running.values())
        longs = len(self._running) - shorts
        frees_s = {short: self._slot_frees_s(short, now) for short in (True, False)}
        held_s = shorts * frees_s[True] + longs * frees_s[False]
        first_s = held_s / max(1, len(self._running))
        return first_s + self._order.wait_s(one, now, frees_s.__getitem__)

    def _slot_frees_s(self, short: bool, now: float) -> float:
        """How often a slot frees; where KV is what lacks, only those that are taken count."""
        slots = len(self._running) if self._lacking and self._running else self._limit.value
        return self.learned.slot_frees_s(short, slots, now)

    def first_token_s(self, short: bool, now: float, need: Need | None = None) -> float:
        load = len(self._running) / self._limit.value
        return self.learned.first_token_s(short, load, now, need.prompt if need is not None else 0)
