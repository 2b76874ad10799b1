"""Work that many ask for at once is done once: who comes while it runs waits for the same result.

The work is nobody's own. A waiter that leaves (cancelled, out of time) leaves the others waiting; when the last
one has left, the work is cancelled, unless it has said that it has begun what cannot be stopped. Then it goes on
to its end, since whoever asked is likely to ask again. What it returns or raises is told to all who wait.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Begin = Callable[[], None]
"""Says that the work can no longer be stopped. May be called from any thread."""


class Flight(Generic[T]):
    """One piece of work that runs, and who waits for it."""

    def __init__(self, work: Callable[[Begin], Coroutine[Any, Any, T]]) -> None:
        self._begun = False
        self._left = False
        self._waiters = 0
        self.task = asyncio.get_running_loop().create_task(work(self._begin))
        self.task.add_done_callback(_seen)

    @property
    def open(self) -> bool:
        """Whether one more may wait for it."""
        return not self._left and not self.task.done()

    async def wait(self) -> T:
        """The result, or what the work raised. A caller that is cancelled takes along work that was its alone."""
        self._waiters += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiters -= 1
            if not self._waiters and not self._begun and not self.task.done():
                self._left = True
                self.task.cancel()
                await asyncio.wait([self.task])

    def _begin(self) -> None:
        self._begun = True


class SingleFlight(Generic[K, T]):
    """The flights of one kind of work, by key. Used from one event loop."""

    def __init__(self) -> None:
        self._flights: dict[K, Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, key: K) -> bool:
        flight = self._flights.get(key)
        return flight is not None and flight.open

    def join(self, key: K, work: Callable[[Begin], Coroutine[Any, Any, T]]) -> Flight[T]:
        """The flight for the key, started with `work` where there is none; the caller must wait() at once.

        Not a coroutine: a caller that only waits does not hold what `work` holds.
        """
        flight = self._flights.get(key)
        if flight is None or not flight.open:
            made = self._flights[key] = Flight(work)
            made.task.add_done_callback(lambda _: self._landed(key, made))
            return made
        return flight

    async def close(self) -> None:
        """Cancels what runs; whoever waits is cancelled. Idempotent."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _landed(self, key: K, flight: Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


def _seen(task: asyncio.Task[Any]) -> None:
    """A failure that nobody waited for any more is not news."""
    if not task.cancelled():
        task.exception()
