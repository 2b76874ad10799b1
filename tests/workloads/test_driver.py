"""The open loop on a clock of its own: deadlines are absolute, nothing waits for an answer, every request is recorded."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from toolkit.core.clock import VirtualClock
from toolkit.core.plan import PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.driver import LEAD_S, Drive, Driver, Progress
from workloads.prepare import Prepared
from workloads.record import LoadOutcome, LoadSample


def prepared(*times: float) -> list[Prepared]:
    planned = [
        PlannedRequest(n, at, WorkloadClass.TEXT_ONLY, SloClass.STANDARD, "x", (), 8)
        for n, at in enumerate(times)
    ]
    return [Prepared(request, (), b"{}") for request in planned]


def record(item: Prepared, sent_s: float, outcome: LoadOutcome = LoadOutcome.COMPLETED) -> LoadSample:
    planned = item.planned
    return LoadSample(
        planned.index, planned.workload_class, planned.slo_class, planned.at_s, outcome, sent_s, sent_s
    )


class Rig:
    """A driver whose sleeps move a virtual clock; `late` adds that much to each sleep."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.clock = VirtualClock(100.0)
        self.stop = asyncio.Event()
        self.late_s = late_s
        self.written: list[LoadSample] = []
        self.progress: list[Progress] = []

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        await asyncio.sleep(0)  # who is ready runs before time passes
        self.clock.advance(seconds + self.late_s)

    def run(
        self,
        requests: list[Prepared],
        ask: Callable[[Prepared, float], Awaitable[LoadSample]],
        duration_s: float = 10.0,
        drain_s: float = 0.05,
    ) -> Drive:
        async def main() -> Drive:
            driver = Driver(requests, ask, self.clock, duration_s, drain_s, self.written.append, self.sleep)
            drive = await driver.run(self.stop)
            self.progress.append(driver.progress())
            assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            return drive

        return asyncio.run(main())


def test_each_request_goes_out_at_its_own_deadline():
    """Send times are the plan's, in a clock where sleeping is exact."""
    rig = Rig()

    async def ask(item: Prepared, started_at: float) -> LoadSample:
        return record(item, rig.clock.monotonic() - started_at)

    drive = rig.run(prepared(0.0, 0.5, 0.5, 2.25), ask)

    assert [s.sent_s for s in drive.samples] == pytest.approx([0.0, 0.5, 0.5, 2.25])
    assert (drive.window_s, drive.interrupted) == (10.0, False)
    assert rig.clock.monotonic() == pytest.approx(100.0 + LEAD_S + 10.0), "the window is held open to its end"


def test_lateness_does_not_add_up():
    """With every sleep 30 ms late, request 100 is 30 ms late, not 3 s."""
    rig = Rig(late_s=0.03)

    async def ask(item: Prepared, started_at: float) -> LoadSample:
        return record(item, rig.clock.monotonic() - started_at)

    drive = rig.run(prepared(*(n * 0.1 for n in range(101))), ask, duration_s=11.0)

    assert max(s.slip_s for s in drive.samples) == pytest.approx(0.03)


def test_a_server_that_never_answers_slows_nothing_down():
    """All requests go out on time while none is answered; at the end each is recorded as unfinished."""
    rig = Rig()
    sent: list[int] = []

    async def ask(item: Prepared, started_at: float) -> LoadSample:
        sent.append(item.planned.index)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return record(item, item.planned.at_s, LoadOutcome.BROKEN)
        raise AssertionError

    drive = rig.run(prepared(0.1, 0.2, 0.3), ask)

    assert sent == [0, 1, 2]
    assert [s.outcome for s in drive.samples] == [LoadOutcome.BROKEN] * 3
    assert rig.progress[-1] == Progress(pytest.approx(10.0), 3, 3, 3, 3)


def test_samples_are_handed_over_as_they_end():
    """What ends first is written first; the result is in the plan's order."""
    rig = Rig()
    release = asyncio.Event()

    async def ask(item: Prepared, started_at: float) -> LoadSample:
        if item.planned.index == 0:
            await release.wait()
        else:
            release.set()
        return record(item, item.planned.at_s)

    drive = rig.run(prepared(0.0, 1.0), ask, drain_s=5.0)

    assert [s.index for s in rig.written] == [1, 0]
    assert [s.index for s in drive.samples] == [0, 1]


def test_an_interrupt_keeps_what_was_recorded():
    """After Ctrl-C nothing more is sent, open requests are cut off, and what was not due is no failure."""
    rig = Rig()

    async def ask(item: Prepared, started_at: float) -> LoadSample:
        if item.planned.index == 1:
            rig.stop.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return record(item, item.planned.at_s, LoadOutcome.BROKEN)
        return record(item, item.planned.at_s)

    async def wait_for_stop(seconds: float) -> None:
        await asyncio.sleep(0)
        if rig.stop.is_set():
            await asyncio.Event().wait()  # the virtual hour until the last request never passes
        rig.clock.advance(seconds)

    rig.sleep = wait_for_stop
    drive = rig.run(prepared(0.0, 1.0, 3600.0), ask, duration_s=4000.0)

    assert drive.interrupted
    assert [s.outcome for s in drive.samples] == [LoadOutcome.COMPLETED, LoadOutcome.BROKEN]
    assert drive.window_s < 3600.0


def test_what_was_due_and_never_begun_counts_as_unsent():
    """A request whose task was cancelled before its first step still has a record."""
    rig = Rig()

    async def ask(item: Prepared, started_at: float) -> LoadSample:
        await asyncio.Event().wait()
        raise AssertionError

    drive = rig.run(prepared(0.5), ask)

    assert [(s.outcome, s.code) for s in drive.samples] == [(LoadOutcome.UNSENT, "unsent")]


def test_our_own_bug_is_not_a_sample():
    """`ask` records what servers do wrong; what it raises is a fault of the generator and ends the run."""
    rig = Rig()

    async def ask(item: Prepared, started_at: float) -> LoadSample:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        rig.run(prepared(0.5), ask)
