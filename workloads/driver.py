"""Open loop: each request goes out at its own absolute deadline, whatever the server does.

A late request does not move the next one's deadline (relative sleeps lose up to 65 % of the asked rate), and nothing
waits for an answer, so a slow server meets the load it was promised. Lateness is recorded, not hidden.

A client that was told to come back does so when its policy says, inside the window or the drain after it. That is an
attempt more of the same request, no offer more.

A closed loop is the explicit other choice: so many requests are open at any time, and one is due when another ends.
Its load falls as the server slows, so its delays say less.
"""

import asyncio
import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from toolkit.core.clock import Clock
from workloads.alarm import Alarm, make_alarm
from workloads.prepare import Prepared
from workloads.record import LoadSample, unsent

LEAD_S = (
    0.05  # between the decision to start and the run's zero, so that a request due at 0 is not late already
)
MAX_BURST = (
    16  # requests begun in one turn of the loop: the tokens that arrived meanwhile want their times too
)


ComesBack = Callable[[LoadSample], float | None]
"""When a record's client sends its request again, in seconds after the run's start; None where it does not."""


class Caller(Protocol):
    """Who sends."""

    def begin(self, prepared: Prepared, started_at: float, on_end: Callable[[LoadSample], None]) -> None:
        """Send one request now; `on_end` gets its record once. Must not block."""

    def cut_off(self) -> None:
        """End all open requests now; each hands in its record before this returns."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is, in first attempts. elapsed_s may pass the window while answers are awaited."""

    elapsed_s: float
    sent: int
    ended: int
    failed: int
    planned: int


@dataclass(frozen=True, slots=True)
class Drive:
    """What a run left: every attempt, in the plan's order.

    window_s: the offered window, shorter than planned when interrupted. ended_s: the last answer to a first attempt.
    """

    samples: tuple[LoadSample, ...]
    window_s: float
    ended_s: float
    interrupted: bool


class Driver:
    """One run of prepared requests, in the order of their deadlines."""

    def __init__(
        self,
        prepared: Sequence[Prepared],
        caller: Caller,
        clock: Clock,
        duration_s: float,
        drain_s: float,
        on_sample: Callable[[LoadSample], None] = lambda _: None,
        alarm: Alarm | None = None,
        concurrency: int = 0,
        comes_back: ComesBack = lambda _: None,
    ) -> None:
        """on_sample: told of every record as it ends; must not block. alarm: on the clock; default the real one.

        concurrency: 0, an open loop; N, a closed one with N open requests, whose planned times mean nothing: each is
        due when it is begun, and those that the window left over are no part of the result.
        comes_back: asked of every record of an open loop. What would come after the drain does not.
        """
        self._prepared = prepared
        self._caller = caller
        self._clock = clock
        self._duration_s = duration_s
        self._drain_s = drain_s
        self._on_sample = on_sample
        self._alarm = alarm
        self._concurrency = concurrency
        self._comes_back = comes_back
        self._by_index = {item.planned.index: item for item in prepared}
        self._back: list[tuple[float, int, Prepared]] = []  # a heap: when, order of refusal, what
        self._started_at = 0.0
        self._begun = 0  # of the plan
        self._returned = 0  # begun again
        self._ended_first = 0
        self._failed = 0
        self._bug: Exception | None = (
            None  # what the caller raised: it records a server's faults, so it is ours
        )
        self._samples: list[LoadSample] = []
        self._over = asyncio.Event()  # window and drain are

    @property
    def started_at(self) -> float:
        """The run's zero on the clock; 0 before `run`."""
        return self._started_at

    def progress(self) -> Progress:
        elapsed_s = max(0.0, self._clock.monotonic() - self._started_at) if self._started_at else 0.0
        return Progress(elapsed_s, self._begun, self._ended_first, self._failed, len(self._prepared))

    async def run(self, stop: asyncio.Event) -> Drive:
        """Send everything, then wait for open answers up to `drain_s`; what is open then is cut off and recorded.

        When `stop` is set, nothing more is sent and open answers are cut off at once; requests that were not due yet
        are no part of the result.
        """
        alarm = self._alarm = self._alarm or make_alarm()
        self._started_at = self._clock.monotonic() + LEAD_S
        alarm.set(self._started_at, self._pace)
        try:
            await first_of(stop, self._over)
            interrupted = not self._over.is_set()
        finally:
            alarm.close()
            self._alarm = None  # what is cut off now sets nothing going
        early = interrupted or self._exhausted_early()
        window_s = min(self._duration_s, max(0.0, self._now())) if early else self._duration_s
        self._caller.cut_off()
        if self._bug is not None:
            raise self._bug
        recorded = {sample.index for sample in self._samples}
        for due in () if self._concurrency else self._prepared:
            if due.planned.at_s < window_s and due.planned.index not in recorded:
                self._keep(unsent(due.planned, self._now()))
        samples = tuple(sorted(self._samples, key=lambda sample: (sample.index, sample.attempt)))
        last_s = max((s.ended_s for s in samples if s.first), default=0.0)
        return Drive(samples, window_s, last_s, interrupted)

    def _now(self) -> float:
        return self._clock.monotonic() - self._started_at

    def _pace(self) -> None:
        """Begin what is due and set the alarm for what is next."""
        alarm = self._alarm
        assert alarm is not None
        for _ in range(MAX_BURST):
            due = self._next()
            if due is None:
                break
            if due.attempt:
                heapq.heappop(self._back)
                self._returned += 1
            else:
                self._begun += 1
            try:
                self._caller.begin(due, self._started_at, self._ended)
            except Exception as error:  # raised again by `run`
                self._bug = error
                self._over.set()
                return
        if self._concurrency:
            self._pace_closed(alarm)
        elif (next_s := self._next_s()) < math.inf:
            alarm.set(self._started_at + next_s, self._pace)
        elif self._now() < self._duration_s:
            alarm.set(self._started_at + self._duration_s, self._pace)
        elif not self._idle():
            alarm.set(self._started_at + self._end_s, self._over.set)

    def _pace_closed(self, alarm: Alarm) -> None:
        if self._now() < self._duration_s and not self._exhausted_early():
            again = self._now() if self._next() is not None else self._duration_s
            alarm.set(self._started_at + again, self._pace)
        elif not self._idle():
            alarm.set(self._started_at + self._end_s, self._over.set)

    @property
    def _end_s(self) -> float:
        return self._duration_s + self._drain_s

    def _next_s(self) -> float:
        """When an open loop begins something next; infinity for never."""
        return min(self._planned_s, self._back_s)

    @property
    def _planned_s(self) -> float:
        return self._prepared[self._begun].planned.at_s if self._more else math.inf

    @property
    def _back_s(self) -> float:
        return self._back[0][0] if self._back else math.inf

    @property
    def _more(self) -> bool:
        return self._begun < len(self._prepared)

    def _next(self) -> Prepared | None:
        """What is due now."""
        now = self._now()
        if not self._concurrency:
            if self._next_s() > now:
                return None
            return self._back[0][2] if self._back_s < self._planned_s else self._prepared[self._begun]
        if not self._more or now >= self._duration_s or self._open >= self._concurrency:
            return None
        due = self._prepared[self._begun]
        return replace(due, planned=replace(due.planned, at_s=now))

    @property
    def _open(self) -> int:
        return self._begun + self._returned - len(self._samples)

    def _exhausted_early(self) -> bool:
        """Whether a closed loop has asked all that it had before its window's end."""
        return bool(self._concurrency) and not self._more and self._idle()

    def _ended(self, sample: LoadSample) -> None:
        self._keep(sample)
        if self._concurrency:
            if self._alarm is not None:
                self._alarm.set(self._clock.monotonic(), self._pace)
            return
        back_s = self._comes_back(sample)
        if back_s is not None and back_s <= self._end_s:
            self._queue(sample, back_s)
        elif not self._more and self._now() >= self._duration_s:
            self._idle()

    def _queue(self, sample: LoadSample, back_s: float) -> None:
        item = self._by_index[sample.index]
        planned = replace(item.planned, at_s=back_s)
        again = replace(item, planned=planned, attempt=sample.attempt + 1)
        heapq.heappush(self._back, (back_s, len(self._samples), again))
        if self._back[0][2] is again and self._alarm is not None:
            self._alarm.set(self._started_at + self._next_s(), self._pace)

    def _idle(self) -> bool:
        """Whether no answer is open after the last request, and nobody is to come back; then the run is over."""
        if self._open or self._back:
            return False
        self._over.set()
        return True

    def _keep(self, sample: LoadSample) -> None:
        self._samples.append(sample)
        self._ended_first += sample.first
        self._failed += sample.first and not sample.completed
        self._on_sample(sample)


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
