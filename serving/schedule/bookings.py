"""When each that is sent away should come again, so that not all come at once. Pure; durations in seconds.

Of what the engines do, a half is booked for those who come back; the other half is for those who come of their own. A booking
promises nothing and keeps no slot: it only puts the next one that is sent away behind it (docs/decisions/0022-who-goes-first.md).
"""

from math import ceil, inf

APART = 2.0
"""Service times from one booking to the next."""
LEAST_S, MAX_RETRY_AFTER_S = 1.0, 30.0


class Bookings:
    """Of one admission."""

    def __init__(self) -> None:
        self._until = -inf

    def book(self, lacking_s: float, frees_s: float, now: float) -> float:
        """In how many seconds to come: what this one lacks now, and the bookings made before it that have not passed. frees_s: how
        often a slot frees. More than MAX_RETRY_AFTER_S cannot be told, so no more is ever booked ahead."""
        before_s = max(0.0, self._until - now)
        self._until = now + min(MAX_RETRY_AFTER_S, before_s + APART * frees_s)
        return max(LEAST_S, lacking_s) + before_s


def retry_after_s(in_s: float) -> float:
    """Whole seconds, from one to MAX_RETRY_AFTER_S."""
    return float(min(MAX_RETRY_AFTER_S, max(LEAST_S, ceil(in_s))))


def in_words(in_s: float) -> str:
    """What is to be said beside it: that the most that can be told is not enough, if so."""
    if in_s <= MAX_RETRY_AFTER_S:
        return ""
    return f" It is too full to say when there is room: not before {MAX_RETRY_AFTER_S:.0f} s, the most that is told, and maybe not then."
