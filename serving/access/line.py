"""Who works next on the images of one lane: in turn, as many at once as there are workers and memory. Pure."""

from collections import OrderedDict
from typing import Generic, TypeVar

from serving.access.cost import Cost
from toolkit.core.errors import Busy, TooLarge

K = TypeVar("K")

_SMOOTHING = 0.1  # weight of the latest job in the running mean
_SLOWEST = 50.0


class Line(Generic[K]):
    """`workers` at once, whose costs together keep `memory_bytes`; `most_waiting` more in line."""

    def __init__(self, name: str, workers: int, memory_bytes: int, most_waiting: int) -> None:
        self.name = name
        self.workers = workers
        self.memory_bytes = memory_bytes
        self.most_waiting = most_waiting
        self._waiting: OrderedDict[K, Cost] = OrderedDict()
        self._working: dict[K, Cost] = {}
        self._slowness = 1.0  # seconds that pass per second of estimated CPU time

    def __repr__(self) -> str:
        return f"<Line {self.name}: {self.working}/{self.workers} work, {self.waiting} wait, {self.taken_bytes} B>"

    @property
    def working(self) -> int:
        """Jobs that a worker has, those included that nobody wants any more."""
        return len(self._working)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def taken_bytes(self) -> int:
        """Memory that the working jobs are estimated to take at their peaks."""
        return sum(cost.memory_bytes for cost in self._working.values())

    def wait_s(self) -> float:
        """How long one who came now would stand in line, seconds: the work ahead, as fast as work went lately."""
        if self.working < self.workers and not self._waiting:
            return 0.0
        costs = [*self._waiting.values(), *self._working.values()]
        return sum(cost.cpu_s for cost in costs) * self._slowness / self.workers

    def takes(self, cost: Cost) -> float:
        """How long a job takes once it works, seconds."""
        return cost.cpu_s * self._slowness

    def join(self, key: K, cost: Cost) -> list[K]:
        """Stand in line; returns who starts to work now.

        Raises TooLarge(image_too_large) for a job that would not fit alone, Busy(queue_full) where the line is full.
        """
        if cost.memory_bytes > self.memory_bytes:
            raise TooLarge(
                f"preparing the image takes {_mb(cost.memory_bytes)} MB of memory; images may take"
                f" {_mb(self.memory_bytes)} MB here (access.memory_mb).",
                code="image_too_large",
            )
        if self.waiting >= self.most_waiting:
            raise Busy(
                f"{self.waiting} images wait to be prepared already; the limit is {self.most_waiting}.",
                retry_after_s=max(1.0, self.wait_s()),
            )
        self._waiting[key] = cost
        return self._start()

    def leave(self, key: K) -> list[K]:
        """Leave the line before any work; returns who starts now. Idempotent."""
        self._waiting.pop(key, None)
        return self._start()

    def done(self, key: K, took_s: float) -> list[K]:
        """A worker has ended the job after `took_s` seconds; returns who starts now."""
        cost = self._working.pop(key)
        seen = min(_SLOWEST, took_s / cost.cpu_s)
        self._slowness += _SMOOTHING * (seen - self._slowness)
        return self._start()

    def check(self) -> None:
        """Raises AssertionError unless the bounds hold and nobody waits for what is free."""
        assert self.working <= self.workers, self
        assert self.taken_bytes <= self.memory_bytes, self
        assert self.waiting <= self.most_waiting, self
        assert not self._waiting or not self._fits(next(iter(self._waiting.values()))), self

    def _fits(self, cost: Cost) -> bool:
        return self.working < self.workers and self.taken_bytes + cost.memory_bytes <= self.memory_bytes

    def _start(self) -> list[K]:
        started = []
        while self._waiting:
            key, cost = next(iter(self._waiting.items()))
            if not self._fits(cost):
                break
            self._working[key] = self._waiting.pop(key)
            started.append(key)
        return started


def _mb(size_bytes: int) -> int:
    return -(-size_bytes // 1_000_000)
