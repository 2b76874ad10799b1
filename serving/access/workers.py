"""The CPU of the access layer: a fixed number of threads, a bounded queue in front, and an exact count of both.

Threads, because Pillow releases the interpreter lock while it decodes and a thread hands megabytes over for
nothing. The queue is kept on the event loop: a job enters a thread only when one is free, so a waiter that is
cancelled simply leaves.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from serving.config import AccessConfig
from toolkit.core.clock import Clock, SystemClock
from toolkit.core.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")

_FIRST_GUESS_S = 0.1  # of one job's length, until jobs have been seen
_SMOOTHING = 0.1  # weight of the latest job in the running mean


class DecodePool:
    """Runs functions on `config.workers` threads (0: one per core this process may use). Used from one event loop."""

    def __init__(self, config: AccessConfig, clock: Clock | None = None) -> None:
        self._threads = config.workers or len(os.sched_getaffinity(0))
        self._most_queued = config.max_queued_images
        self._clock = clock or SystemClock()
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="access")
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._busy = 0
        self._job_s = _FIRST_GUESS_S

    @property
    def busy(self) -> int:
        """Threads at work, those of cancelled jobs included: a thread cannot be stopped."""
        return self._busy

    @property
    def queued(self) -> int:
        """Jobs waiting for a thread."""
        return sum(not turn.done() for turn in self._waiting)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result, or what it raised, in turn of arrival.

        A caller that is cancelled while waiting is skipped. Raises Busy(queue_full) when the queue is full.
        """
        await self._take_turn()
        loop = asyncio.get_running_loop()
        try:
            job = self._executor.submit(partial(function, *args, **kwargs))
        except BaseException:
            self._release()
            raise
        started = self._clock.monotonic()
        job.add_done_callback(lambda _: _on_loop(loop, self._finish, started))
        return await asyncio.wrap_future(job, loop=loop)

    def close(self) -> None:
        """Waiters are cancelled; running jobs end by themselves. Idempotent."""
        for turn in self._waiting:
            turn.cancel()
        self._waiting.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _take_turn(self) -> None:
        if self._busy < self._threads:
            self._busy += 1
            return
        queued = self.queued
        if queued >= self._most_queued:
            wait_s = max(1.0, (queued + 1) * self._job_s / self._threads)
            raise Busy(
                f"{queued} images wait to be prepared already; the limit is {self._most_queued}.",
                retry_after_s=wait_s,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the turn was given and is passed on
            raise

    def _finish(self, started: float) -> None:
        self._job_s += _SMOOTHING * (self._clock.monotonic() - started - self._job_s)
        self._release()

    def _release(self) -> None:
        """Give the free thread to the first waiter, or count it free."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy -= 1


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[float], None], started: float) -> None:
    """Called from a worker thread; the loop may have been closed under a job that nobody waited for."""
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(function, started)
        except RuntimeError:
            return
