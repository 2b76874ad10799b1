"""Which hosts have failed so often that they are left alone for a while. Pure; time is passed in, seconds.

A breaker for each host that was asked lately, in a bounded table: whoever invents host names can push others out of
it, and then those are merely asked again.
"""

from collections import OrderedDict
from dataclasses import dataclass

from serving.access.breaker import Breaker, BreakerRule, Pass, State

WINDOW_S = 60.0
"""Failures further apart than this are no row."""

MOST_HOSTS = 1024
"""Hosts that are remembered: a few hundred bytes each."""

_WHILE_PROBED_S = 1.0  # what is left to wait is the probe's to say


@dataclass(slots=True)
class _Entry:
    breaker: Breaker
    failed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave to ask a host; every one comes back by one of answered, failed, unasked."""

    host: str
    entry: _Entry
    held: Pass


class HostStanding:
    """Every host's breaker."""

    def __init__(self, rule: BreakerRule, window_s: float = WINDOW_S, most_hosts: int = MOST_HOSTS) -> None:
        self._rule = rule
        self._window_s = window_s
        self._most_hosts = most_hosts
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def retry_after_s(self, host: str, now: float) -> float:
        """How long the host is still left alone; 0 where it may be asked."""
        entry = self._entries.get(host)
        return entry.breaker.retry_after_s(now) if entry is not None else 0.0

    def enter(self, host: str, now: float) -> Leave | float:
        """Leave to ask, or the time in seconds after which that may be tried again."""
        entry = self._entries.get(host)
        if entry is None or self._forgotten(entry, now):
            entry = self._entries[host] = _Entry(Breaker(self._rule))
        self._entries.move_to_end(host)
        if len(self._entries) > self._most_hosts:
            self._entries.popitem(last=False)
        held = entry.breaker.enter(now)
        if held is None:
            return max(entry.breaker.retry_after_s(now), _WHILE_PROBED_S)
        return Leave(host, entry, held)

    def answered(self, leave: Leave) -> None:
        """The host answered as a working host does, whether with an image or without."""
        leave.entry.breaker.succeeded(leave.held)

    def failed(self, leave: Leave, now: float) -> bool:
        """The host did not answer, or as one that is broken. True where this was one too many."""
        before = leave.entry.breaker.state(now)
        leave.entry.breaker.failed(leave.held, now)
        leave.entry.failed_at = now
        return before is not State.OPEN and leave.entry.breaker.state(now) is State.OPEN

    def unasked(self, leave: Leave) -> None:
        """It did not come to an answer, and that was not the host's doing."""
        leave.entry.breaker.left(leave.held)

    def _forgotten(self, entry: _Entry, now: float) -> bool:
        if entry.failed_at is None or now - entry.failed_at <= self._window_s:
            return False
        return entry.breaker.state(now) is State.CLOSED
