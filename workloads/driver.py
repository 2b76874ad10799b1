"""Open loop: each request goes out at its own absolute deadline, whatever the server does.

A late request does not move the next one's deadline (relative sleeps lose up to 65 % of the asked rate), and nothing
waits for an answer, so a slow server meets the load it was promised. Lateness is recorded, not hidden.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from toolkit.core.clock import Clock
from workloads.prepare import Prepared
from workloads.record import LoadSample, unsent

LEAD_S = (
    0.05  # between the decision to start and the run's zero, so that a request due at 0 is not late already
)
CANCEL_GRACE_S = 5.0  # for cancelled requests to hand in their records

Ask = Callable[[Prepared, float], Awaitable[LoadSample]]
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is. elapsed_s may pass the window while answers are awaited."""

    elapsed_s: float
    sent: int
    ended: int
    failed: int
    planned: int


@dataclass(frozen=True, slots=True)
class Drive:
    """What a run left. window_s: the offered window, shorter than planned when interrupted. ended_s: the last answer."""

    samples: tuple[LoadSample, ...]
    window_s: float
    ended_s: float
    interrupted: bool


class Driver:
    """One run of prepared requests, in the order of their deadlines."""

    def __init__(
        self,
        prepared: Sequence[Prepared],
        ask: Ask,
        clock: Clock,
        duration_s: float,
        drain_s: float,
        on_sample: Callable[[LoadSample], None] = lambda _: None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """on_sample: told of every record as it ends; must not block."""
        self._prepared = prepared
        self._ask = ask
        self._clock = clock
        self._duration_s = duration_s
        self._drain_s = drain_s
        self._on_sample = on_sample
        self._sleep = sleep
        self._started_at = 0.0
        self._begun = 0
        self._failed = 0
        self._bug: BaseException | None = (
            None  # what `ask` raised: it records a server's faults, so this is ours
        )
        self._open: set[asyncio.Task[None]] = set()
        self._samples: list[LoadSample] = []

    def progress(self) -> Progress:
        elapsed_s = max(0.0, self._clock.monotonic() - self._started_at) if self._started_at else 0.0
        return Progress(elapsed_s, self._begun, len(self._samples), self._failed, len(self._prepared))

    async def run(self, stop: asyncio.Event) -> Drive:
        """Send everything, then wait for open answers up to `drain_s`; what is open then is cut off and recorded.

        When `stop` is set, nothing more is sent and open answers are cut off at once; requests that were not due yet
        are no part of the result.
        """
        self._started_at = self._clock.monotonic() + LEAD_S
        interrupted = not await _before(stop, self._send_all())
        window_s = min(self._duration_s, max(0.0, self._now())) if interrupted else self._duration_s
        if not interrupted:
            interrupted = not await _before(stop, self._drain())
        await self._cut_off()
        if self._bug is not None:
            raise self._bug
        recorded = {sample.index for sample in self._samples}
        for due in self._prepared:
            if due.planned.at_s < window_s and due.planned.index not in recorded:
                self._keep(unsent(due.planned, self._now()))
        samples = tuple(sorted(self._samples, key=lambda sample: sample.index))
        return Drive(samples, window_s, max((s.ended_s for s in samples), default=0.0), interrupted)

    def _now(self) -> float:
        return self._clock.monotonic() - self._started_at

    async def _send_all(self) -> None:
        for prepared in self._prepared:
            wait_s = prepared.planned.at_s - self._now()
            if wait_s > 0:
                await self._sleep(wait_s)
            self._begun += 1
            task = asyncio.create_task(self._one(prepared))
            self._open.add(task)
            task.add_done_callback(self._reap)
        wait_s = self._duration_s - self._now()
        if wait_s > 0:
            await self._sleep(wait_s)

    async def _one(self, prepared: Prepared) -> None:
        self._keep(await self._ask(prepared, self._started_at))

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._open.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._bug = self._bug or task.exception()

    async def _drain(self) -> None:
        if self._open:
            await asyncio.wait(set(self._open), timeout=self._drain_s)

    async def _cut_off(self) -> None:
        left = set(self._open)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCEL_GRACE_S)

    def _keep(self, sample: LoadSample) -> None:
        self._samples.append(sample)
        self._failed += not sample.completed
        self._on_sample(sample)


async def _before(stop: asyncio.Event, work: Awaitable[None]) -> bool:
    """Do the work unless `stop` comes first; whether it was done. The work's own error is raised."""
    doing = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({doing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
            return True
        return False
    finally:
        for task in (doing, waiting):
            task.cancel()
        await asyncio.gather(doing, waiting, return_exceptions=True)
