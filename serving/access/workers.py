"""The CPU of the access layer: four lanes, each with its workers, its memory and its bounded line in front.

light: small images whose work shows in their headers, and chores, on threads. bulk: chores on large files, the same
way, so that no small image waits behind megabytes of base64. apart: small images whose work does not
show (WebP, AVIF), in processes. heavy: everything large, in processes that yield to the event loop and to engines on
the same cores. Threads hand megabytes over for nothing; processes can be killed. The lines are kept on the event loop: a
job meets a worker only when one is free, so a waiter that is cancelled simply leaves.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal, ParamSpec, TypeVar

from serving.access.apart import Painter, Work
from serving.access.budget import budget_of
from serving.access.cost import Cost
from serving.access.header import ImageHeader
from serving.access.line import Line
from serving.access.paint import Painted, paint
from serving.access.picture import Prepared, Task, wrap
from serving.config import AccessConfig
from toolkit.core.clock import Clock, SystemClock
from toolkit.core.errors import Busy, OutOfTime, TooLarge

P = ParamSpec("P")
T = TypeVar("T")

Lane = Literal["light", "bulk", "apart", "heavy"]

LIGHT_S = 0.05
"""CPU time, seconds, up to which an image is light: a photo of 5 MP."""

_UNSCREENED = frozenset({"WEBP", "AVIF"})
_CHORE = Cost(memory_bytes=0, cpu_s=0.005)
_BULK_BYTES = 1_000_000
_HOPELESS = 2.0
"""An image that takes so many times what is left is not begun; less may be an estimate that is too high."""
_HEAVY_NICE = 5
_HEAVY_BYTES = 64_000_000  # that a heavy worker should find; with less memory there are fewer workers


@dataclass(frozen=True, slots=True)
class Made:
    """A prepared image and what it took, seconds: in line, and the CPU time of each step."""

    prepared: Prepared
    lane: Lane
    waited_s: float
    decode_s: float
    resize_s: float
    encode_s: float


class LateError(Busy):
    """The image would not be ready by `deadline`; somebody with more time may try."""

    def __init__(self, wait_s: float, deadline: float) -> None:
        super().__init__(
            f"an image would wait {wait_s:.1f} s to be prepared, longer than its request can.",
            retry_after_s=max(1.0, wait_s),
        )
        self.deadline = deadline


class DecodePool:
    """Used from one event loop; owns its threads and processes. `config.workers` 0: one per core of this process."""

    def __init__(self, config: AccessConfig, clock: Clock | None = None) -> None:
        cores = config.workers or len(os.sched_getaffinity(0))
        budget = budget_of(config)
        self._config = config
        self._clock = clock or SystemClock()
        few = min(cores, 2)
        heavy = max(1, min(cores, budget.heavy // _HEAVY_BYTES))
        most = config.max_queued_images
        self.lines: dict[Lane, Line[object]] = {
            "light": Line("light", cores, budget.light, most),
            "bulk": Line("bulk", few, 0, most),
            "apart": Line("apart", few, budget.apart, most),
            "heavy": Line("heavy", heavy, budget.heavy, most),
        }
        self._executors = {
            lane: ThreadPoolExecutor(line.workers, thread_name_prefix=f"access-{lane}")
            for lane, line in self.lines.items()
        }
        self._painters = {
            "apart": [Painter(0, config.decoder) for _ in range(few)],
            "heavy": [Painter(_HEAVY_NICE, config.decoder) for _ in range(heavy)],
        }
        self._idle = {lane: deque(reversed(painters)) for lane, painters in self._painters.items()}
        self._turns: dict[object, asyncio.Future[None]] = {}

    @property
    def busy(self) -> int:
        """Workers at work, those of cancelled jobs included: they go on to their end."""
        return sum(line.working for line in self.lines.values())

    @property
    def queued(self) -> int:
        """Jobs waiting for a worker."""
        return sum(line.waiting for line in self.lines.values())

    @property
    def pids(self) -> list[int]:
        """The decoding processes that run."""
        return [pid for painters in self._painters.values() for one in painters if (pid := one.pid)]

    @property
    def lost(self) -> int:
        """Decoding processes that were ended from outside, so far."""
        return sum(one.lost for painters in self._painters.values() for one in painters)

    def reap(self) -> None:
        """Buries decoding processes that were ended while idle."""
        for painters in self._painters.values():
            for one in painters:
                one.reap()

    def warm(self) -> None:
        """Starts one process of each kind, which takes a moment: called before the first image asks for it."""
        for painters in self._painters.values():
            painters[0].start()

    def lane_of(self, header: ImageHeader, cost: Cost) -> Lane:
        """Where an image is prepared."""
        small = cost.cpu_s <= LIGHT_S
        lane: Lane = "apart" if header.format in _UNSCREENED else "light"
        return lane if small and cost.memory_bytes <= self.lines[lane].memory_bytes else "heavy"

    def cpu_limit_s(self, header: ImageHeader) -> float:
        """CPU seconds after which decoding this image is ended."""
        return self._config.decode_cpu_s + header.pixels * self._config.decode_cpu_ns_per_pixel * 1e-9

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A chore's result, or what it raised, from the light lane. Raises Busy(queue_full)."""
        return await self._in_line("light", _CHORE, partial(function, *args, **kwargs))

    async def run_on(self, size_bytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a chore on a file of that size, in the bulk lane where it is large."""
        lane: Lane = "light" if size_bytes <= _BULK_BYTES else "bulk"
        return await self._in_line(lane, _CHORE, partial(function, *args, **kwargs))

    async def make(self, data: bytes, task: Task, deadline: float, begin: Callable[[], None]) -> Made:
        """The prepared image. `deadline`: instant of the clock's monotonic() by which somebody needs it.

        `begin` is called in a worker, when the work can no longer be given up.
        Raises InvalidRequest (image_invalid), TooLarge (image_too_large, image_too_costly), Busy, LateError,
        OutOfTime(hop="prepare") for what could not be ready.
        """
        header, cost = task.header, task.cost
        limit_s = self.cpu_limit_s(header)
        if cost.cpu_s > limit_s:
            raise TooLarge(
                f"decoding the {header.format} image takes about {cost.cpu_s:.1f} s of CPU; the limit for its size is"
                f" {limit_s:.1f} s.",
                code="image_too_costly",
            )
        lane = self.lane_of(header, cost)
        line = self.lines[lane]
        ahead_s, takes_s, left_s = line.wait_s(), line.takes(cost), deadline - self._clock.monotonic()
        if ahead_s > 0 and ahead_s + takes_s > left_s:
            raise LateError(ahead_s, deadline)
        if takes_s > _HOPELESS * left_s:
            raise OutOfTime(
                f"preparing it takes about {takes_s:.1f} s; {max(0.0, left_s):.1f} s are left.", hop="prepare"
            )
        work = Work(header, task.target, self._config.handover, limit_s, cost.memory_bytes)
        joined = self._clock.monotonic()

        def job() -> Made:
            waited_s = self._clock.monotonic() - joined
            begin()
            painted = (
                paint(data, header, work.target, work.handover, self._config.decoder)
                if lane == "light"
                else self._paint_apart(lane, data, work)
            )
            prepared = wrap(painted.file, task, work.handover)
            return Made(prepared, lane, waited_s, painted.decode_s, painted.resize_s, painted.encode_s)

        return await self._in_line(lane, cost, job)

    def close(self) -> None:
        """Waiters are cancelled; processes are ended; running threads end by themselves. Idempotent."""
        for turn in self._turns.values():
            turn.cancel()
        self._turns.clear()
        for executor in self._executors.values():
            executor.shutdown(wait=False, cancel_futures=True)
        for painters in self._painters.values():
            for painter in painters:
                painter.close()

    def _paint_apart(self, lane: Lane, data: bytes, work: Work) -> Painted:
        """In a worker thread, which holds a process for as long."""
        painter = self._idle[lane].pop()
        try:
            painted = painter.paint(data, work)
        finally:
            self._idle[lane].append(painter)
        return painted

    async def _in_line(self, lane: Lane, cost: Cost, function: Callable[[], T]) -> T:
        line, key = self.lines[lane], object()
        turn = self._turns[key] = asyncio.get_running_loop().create_future()
        try:
            self._start(line.join(key, cost))
            await turn
        except BaseException:
            given = turn.done() and not turn.cancelled()
            self._start(line.done(key, cost.cpu_s) if given else line.leave(key))
            raise
        finally:
            self._turns.pop(key, None)
        loop = asyncio.get_running_loop()
        started = self._clock.monotonic()

        def ended() -> None:
            self._start(line.done(key, self._clock.monotonic() - started))

        try:
            job = self._executors[lane].submit(function)
        except BaseException:
            ended()
            raise
        job.add_done_callback(lambda _: _on_loop(loop, ended))
        return await asyncio.wrap_future(job, loop=loop)

    def _start(self, keys: list[object]) -> None:
        for key in keys:
            turn = self._turns.get(key)
            if turn is not None and not turn.done():
                turn.set_result(None)


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Called from a worker thread; the loop may have been closed under a job that nobody waited for."""
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:
            return
