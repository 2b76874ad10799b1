"""When each that is sent away should come again, so that not all come at once. Pure; durations in seconds.

Of what the engines do, a half is booked for those who come back; the other half is for those who come of their own. A booking
promises nothing and keeps no slot: it only puts the next one that is sent away behind it (docs/decisions/0022-who-goes-first.md).
"""

from math import ceil, inf
from typing import NamedTuple

from toolkit.core.errors import Busy

APART = 2.0
"""Service times from one booking to the next."""
LEAST_S, MAX_RETRY_AFTER_S = 1.0, 30.0


class Booking(NamedTuple):
    """in_s: when to come; takes_s: how much later for that the next one comes."""

    in_s: float
    takes_s: float


class SentAway(Busy):
    """Is told to come again, and has a booking for that."""

    def __init__(
        self, message: str, booking: Booking, code: str | None = None, hop: str | None = None
    ) -> None:
        super().__init__(
            message + in_words(booking.in_s), code=code, retry_after_s=retry_after_s(booking.in_s), hop=hop
        )
        self.booking = booking


class Bookings:
    """Of one admission."""

    def __init__(self) -> None:
        self._until = -inf

    def book(self, lacking_s: float, frees_s: float, now: float) -> Booking:
        """When to come: what this one lacks now, and the bookings made before it that have not passed. frees_s: how often a slot
        frees. More than MAX_RETRY_AFTER_S cannot be told, so no more is ever booked ahead."""
        before_s = max(0.0, self._until - now)
        takes_s = min(MAX_RETRY_AFTER_S - before_s, APART * frees_s)
        self._until = now + before_s + takes_s
        return Booking(max(LEAST_S, lacking_s) + before_s, takes_s)

    def take_back(self, booking: Booking) -> None:
        """It will not come: it was answered elsewhere."""
        self._until -= booking.takes_s


def retry_after_s(in_s: float) -> float:
    """Whole seconds, from one to MAX_RETRY_AFTER_S."""
    return float(min(MAX_RETRY_AFTER_S, max(LEAST_S, ceil(in_s))))


def in_words(in_s: float) -> str:
    """What is to be said beside it: that the most that can be told is not enough, if so."""
    if in_s <= MAX_RETRY_AFTER_S:
        return ""
    return f" It is too full to say when there is room: not before {MAX_RETRY_AFTER_S:.0f} s, the most that is told, and maybe not then."
