"""How many requests may be between entering and their first token, on each decode. Pure.

One of several decodes may be slow: its link, its card, others' load. The limit of all requests inside (limit.py) would fill
with those that stand before it. So each decode has a window of its own, adapted by the same AIMD (Chiu and Jain 1989;
limit.py) to the first tokens that come out of it, and cut likewise when its queue grows: SGLang's queues in front of
a decode (prealloc and transfer, /v1/loads) have no bound of their own, and --max-queued-requests is ignored in a pair.

Only for decodes that entry chooses (lease.py); where no pool is known pairing chooses, and the limit of all is the bound.
"""

from collections import Counter
from collections.abc import Mapping

from serving.schedule.limit import InFlightLimit

QUEUED = 0.5
"""A queue is long when it holds more than this part of the window, and grows when it is longer than at the look before."""


class Windows:
    """Made as wide as the limit of all requests inside may be; not adaptive: as wide for ever."""

    def __init__(self, least: int, most: int, adaptive: bool) -> None:
        self._bounds = (least, most, adaptive)
        self._limits: dict[str, InFlightLimit] = {}
        self._at: dict[str, str] = {}
        self._inside: Counter[str] = Counter()
        self._queues: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Windows { ({name: (self._inside[name], limit.value) for name, limit in self._limits.items()}) }>"

    @property
    def widths(self) -> Mapping[str, int]:
        """Of each decode that has had requests."""
        return {name: limit.value for name, limit in self._limits.items()}

    def inside(self, decode: str) -> int:
        """How many are in it."""
        return self._inside[decode]

    def is_narrow(self, key: str) -> bool:
        """Whether another decode's window is wider than that which the request is in: then it is late there for that decode's
        sake, and says nothing about the others."""
        decode = self._at.get(key)
        return decode is not None and self._limits[decode].value < max(self.widths.values())

    def closed(self) -> frozenset[str]:
        """Decodes that take nobody now."""
        return frozenset(name for name, limit in self._limits.items() if self._inside[name] >= limit.value)

    def enter(self, key: str, decode: str) -> None:
        """A request goes there; `decode` is no name ("") where nobody has chosen yet, and then nothing is counted."""
        self.leave(key)
        if decode:
            self._limit(decode)
            self._at[key] = decode
            self._inside[decode] += 1

    def leave(self, key: str) -> None:
        """Its first token is out, or it is gone. Once or often."""
        decode = self._at.pop(key, None)
        if decode is not None:
            self._inside[decode] -= 1

    def in_time(self, key: str, part: float) -> None:
        """Its first token is out, after that part of what is in time."""
        if (decode := self._at.get(key)) is not None:
            self._limit(decode).in_time(part, self._inside[decode])
        self.leave(key)

    def too_much(self, key: str, entered: float, now: float) -> None:
        """It entered then and was late, or an engine refused it."""
        if (decode := self._at.get(key)) is not None:
            self._limit(decode).too_much(entered, now)
        self.leave(key)

    def queue(self, decode: str, length: int, now: float) -> None:
        """What a look at the engine says stands in its own queues."""
        before = self._queues.get(decode, length)
        self._queues[decode] = length
        limit = self._limits.get(decode)
        if limit is not None and length > before and length > QUEUED * limit.value:
            limit.too_much(now, now)

    def retune(self, least: int, most: int, adaptive: bool) -> None:
        self._bounds = (least, most, adaptive)
        for limit in self._limits.values():
            limit.retune(least, most, adaptive)

    def check(self) -> None:
        """Raise AssertionError unless the counts are those of who is inside."""
        assert +self._inside == Counter(self._at.values()), self

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self._at)

    def _limit(self, decode: str) -> InFlightLimit:
        if decode not in self._limits:
            self._limits[decode] = InFlightLimit(*self._bounds)
        return self._limits[decode]
