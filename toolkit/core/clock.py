"""Time as an argument: the live clock for processes, a virtual one for tests and simulation."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the current time comes from. All values are seconds."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps back; only differences mean anything."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch, for records that people read."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class VirtualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_s: float = 0.0, epoch_s: float = 1_700_000_000.0) -> None:
        self._now = start_s
        self._epoch = epoch_s - start_s

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._epoch + self._now

    def advance(self, seconds: float) -> None:
        """Move forward. Raises ValueError for a negative step: this clock is monotonic too."""
        if seconds < 0:
            raise ValueError("a monotonic clock cannot go back")
        self._now += seconds
