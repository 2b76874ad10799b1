"""Who gets a place, and who enters the engines: a sans-I/O state machine.

    arrive          prepared        a slot frees
    ------> SEATED --------> QUEUED ------------> RUNNING
              |                |                     |
              +---- leave -----+------- leave -------+----> gone

A seat is taken before the body is read, so the bodies and pixels held at any time are bounded too. `max_waiting` bounds
SEATED + QUEUED, `max_in_flight` bounds RUNNING. Order is FIFO by `prepared`. An event that does not fit the state raises
AdmissionError and changes nothing.
"""

import math
from collections import OrderedDict
from enum import Enum

from toolkit.core.errors import Busy


class Place(Enum):
    """Where a request stands."""

    SEATED = "seated"
    QUEUED = "queued"
    RUNNING = "running"


class AdmissionError(RuntimeError):
    """An event that is illegal in the request's state: a fault of the caller's code."""


class Admission:
    """Seats and slots. Holds no clock: every event brings `now`, seconds on one monotonic clock."""

    MAX_RETRY_AFTER_S = 30.0

    def __init__(self, max_in_flight: int, max_waiting: int) -> None:
        self.max_in_flight = max_in_flight
        self.max_waiting = max_waiting
        self._seated: set[str] = set()
        self._queued: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, float] = {}
        self._service_s = (
            1.0  # smoothed time inside the engines; the start value only shapes the first Retry-After
        )

    def __repr__(self) -> str:
        return f"<Admission {len(self._seated)} seated, {len(self._queued)} queued, {len(self._running)}/{self.max_in_flight} running>"

    @property
    def seated(self) -> int:
        return len(self._seated)

    @property
    def queued(self) -> int:
        return len(self._queued)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def idle(self) -> bool:
        return not (self._seated or self._queued or self._running)

    def place(self, key: str) -> Place | None:
        """Where a request stands; None when it has not arrived or is gone."""
        if key in self._running:
            return Place.RUNNING
        if key in self._queued:
            return Place.QUEUED
        return Place.SEATED if key in self._seated else None

    def arrive(self, key: str) -> None:
        """Take a seat. Raises Busy (queue_full, with Retry-After) when there is none."""
        if self.place(key) is not None:
            raise AdmissionError(f"{key} arrived twice")
        waiting = len(self._seated) + len(self._queued)
        if waiting >= self.max_waiting:
            raise Busy(
                f"The gateway already holds {waiting} waiting requests (limit {self.max_waiting}).",
                retry_after_s=self.retry_after_s(),
            )
        self._seated.add(key)

    def prepared(self, key: str, now: float) -> list[str]:
        """Queue for the engines; returns the requests that enter now, in order."""
        if key not in self._seated:
            raise AdmissionError(f"{key} is {self.place(key)}, not seated")
        self._seated.remove(key)
        self._queued[key] = None
        return self._fill(now)

    def leave(self, key: str, now: float) -> list[str]:
        """End in any state, once or often; returns the requests that enter now, in order."""
        self._seated.discard(key)
        self._queued.pop(key, None)
        entered = self._running.pop(key, None)
        if entered is not None:
            self._service_s += 0.1 * (max(0.0, now - entered) - self._service_s)
        return self._fill(now)

    def retry_after_s(self) -> float:
        """When a place is likely free: the queue's length x smoothed service time / slots, in [1, 30] s."""
        ahead = len(self._seated) + len(self._queued) + 1
        return float(
            min(self.MAX_RETRY_AFTER_S, max(1, math.ceil(ahead * self._service_s / self.max_in_flight)))
        )

    def check(self) -> None:
        """Raise AssertionError unless the books balance: bounds hold, nobody stands in two places, no slot idles beside a queue."""
        assert len(self._running) <= self.max_in_flight, self
        assert len(self._seated) + len(self._queued) <= self.max_waiting, self
        places = [*self._seated, *self._queued, *self._running]
        assert len(places) == len(set(places)), self
        assert not self._queued or len(self._running) == self.max_in_flight, self

    def _fill(self, now: float) -> list[str]:
        entered = []
        while self._queued and len(self._running) < self.max_in_flight:
            key, _ = self._queued.popitem(last=False)
            self._running[key] = now
            entered.append(key)
        return entered
