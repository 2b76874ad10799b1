"""The open loop on a clock of its own: deadlines are absolute, nothing waits for an answer, every request is recorded."""

import asyncio
from collections.abc import Callable

import pytest

from toolkit.core.clock import VirtualClock
from toolkit.core.plan import PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.driver import LEAD_S, MAX_BURST, Drive, Driver, Progress
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


Begin = Callable[[Prepared, float, Callable[[LoadSample], None]], None]


class Scripted:
    """A caller that does what `script` says; what it does not end is open until it is cut off."""

    def __init__(self, script: Begin) -> None:
        self._script = script
        self._open: dict[int, tuple[Prepared, Callable[[LoadSample], None]]] = {}

    def begin(self, prepared: Prepared, started_at: float, on_end: Callable[[LoadSample], None]) -> None:
        def ended(sample: LoadSample) -> None:
            self._open.pop(sample.index)
            on_end(sample)

        self._open[prepared.planned.index] = (prepared, on_end)
        self._script(prepared, started_at, ended)

    def cut_off(self) -> None:
        for item, on_end in self._open.values():
            on_end(record(item, item.planned.at_s, LoadOutcome.BROKEN))
        self._open.clear()


class VirtualAlarm:
    """Rings in the next turn of the loop, after moving the clock there; `late_s` is added to each wait."""

    def __init__(self, rig: "Rig") -> None:
        self._rig = rig
        self._handle: asyncio.Handle | None = None

    def set(self, at: float, callback: Callable[[], None]) -> None:
        self.close()
        self._handle = asyncio.get_running_loop().call_soon(self._ring, at, callback)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _ring(self, at: float, callback: Callable[[], None]) -> None:
        clock = self._rig.clock
        if (wait_s := at - clock.monotonic()) > 0:
            clock.advance(wait_s + self._rig.late_s + 1e-9)  # never before `at`, however floats round
        callback()


class Rig:
    """A driver whose alarm moves a virtual clock."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.clock = VirtualClock(100.0)
        self.stop = asyncio.Event()
        self.late_s = late_s
        self.written: list[LoadSample] = []
        self.progress: list[Progress] = []

    def now(self, item: Prepared, started_at: float, ended: Callable[[LoadSample], None]) -> None:
        """Answer at once, sent when it was."""
        ended(record(item, self.clock.monotonic() - started_at))

    def run(
        self,
        requests: list[Prepared],
        script: Begin,
        duration_s: float = 10.0,
        drain_s: float = 0.05,
        concurrency: int = 0,
    ) -> Drive:
        async def main() -> Drive:
            driver = Driver(
                requests,
                Scripted(script),
                self.clock,
                duration_s,
                drain_s,
                self.written.append,
                VirtualAlarm(self),
                concurrency,
            )
            drive = await driver.run(self.stop)
            self.progress.append(driver.progress())
            assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            return drive

        return asyncio.run(main())


def test_each_request_goes_out_at_its_own_deadline():
    """Send times are the plan's, in a clock where waiting is exact."""
    rig = Rig()

    drive = rig.run(prepared(0.0, 0.5, 0.5, 2.25), rig.now)

    assert [s.sent_s for s in drive.samples] == pytest.approx([0.0, 0.5, 0.5, 2.25], abs=1e-6)
    assert (drive.window_s, drive.interrupted) == (10.0, False)
    assert rig.clock.monotonic() == pytest.approx(100.0 + LEAD_S + 10.0), "the window is held open to its end"


def test_lateness_does_not_add_up():
    """With every alarm 30 ms late, request 100 is 30 ms late, not 3 s."""
    rig = Rig(late_s=0.03)

    drive = rig.run(prepared(*(n * 0.1 for n in range(101))), rig.now, duration_s=11.0)

    assert max(s.slip_s for s in drive.samples) == pytest.approx(0.03)


def test_what_is_due_together_goes_out_in_small_bursts():
    """A hundred requests due at once are all sent then, but the loop may read tokens in between."""
    rig = Rig()
    turns: list[int] = []

    def count(item: Prepared, started_at: float, ended: Callable[[LoadSample], None]) -> None:
        if item.planned.index % MAX_BURST == 0:
            asyncio.get_running_loop().call_soon(turns.append, item.planned.index)
        turns.append(-1)
        rig.now(item, started_at, ended)

    drive = rig.run(prepared(*[1.0] * 100), count)

    assert [s.slip_s for s in drive.samples] == pytest.approx([0.0] * 100, abs=1e-6)
    assert turns.index(0) <= MAX_BURST


def test_a_server_that_never_answers_slows_nothing_down():
    """All requests go out on time while none is answered; at the end each is recorded as unfinished."""
    rig = Rig()
    sent: list[int] = []

    drive = rig.run(prepared(0.1, 0.2, 0.3), lambda item, *_: sent.append(item.planned.index))

    assert sent == [0, 1, 2]
    assert [s.outcome for s in drive.samples] == [LoadOutcome.BROKEN] * 3
    assert rig.progress[-1] == Progress(pytest.approx(10.05), 3, 3, 3, 3), "open answers had the drain"


def test_samples_are_handed_over_as_they_end():
    """What ends first is written first; the result is in the plan's order."""
    rig = Rig()
    held: list[Callable[[], None]] = []

    def script(item: Prepared, started_at: float, ended: Callable[[LoadSample], None]) -> None:
        held.append(lambda: ended(record(item, item.planned.at_s)))
        if item.planned.index == 1:
            held[1]()
            held[0]()

    drive = rig.run(prepared(0.0, 1.0), script, drain_s=5.0)

    assert [s.index for s in rig.written] == [1, 0]
    assert [s.index for s in drive.samples] == [0, 1]
    assert rig.clock.monotonic() == pytest.approx(100.0 + LEAD_S + 10.0), "nothing is open: no drain"


def test_the_last_answer_ends_the_drain():
    """The run is over when nothing is open, not when the drain's limit is."""
    rig = Rig()

    def script(item: Prepared, started_at: float, ended: Callable[[LoadSample], None]) -> None:
        def answer() -> None:
            if rig.clock.monotonic() < 100.0 + LEAD_S + 10.0:
                asyncio.get_running_loop().call_soon(answer)
            else:
                ended(record(item, item.planned.at_s))

        answer()

    drive = rig.run(prepared(0.0), script, drain_s=1e9)

    assert [s.completed for s in drive.samples] == [True]


def test_an_interrupt_keeps_what_was_recorded():
    """After Ctrl-C nothing more is sent, open requests are cut off, and what was not due is no failure."""
    rig = Rig()

    def script(item: Prepared, started_at: float, ended: Callable[[LoadSample], None]) -> None:
        if item.planned.index == 1:
            rig.stop.set()
            rig.clock.advance(0.25)
        else:
            rig.now(item, started_at, ended)

    # As many as need more turns of the loop than an interrupt does.
    later = [3600.0 + n for n in range(50)]
    drive = rig.run(prepared(0.0, 1.0, *later), script, duration_s=4000.0)

    assert drive.interrupted
    assert [s.outcome for s in drive.samples][:2] == [LoadOutcome.COMPLETED, LoadOutcome.BROKEN]
    assert len(drive.samples) < 52
    assert drive.window_s < 4000.0


def test_what_was_due_and_never_begun_counts_as_unsent():
    """A stall of the generator over the window's end hides no request."""
    rig = Rig()

    def stall(item: Prepared, started_at: float, ended: Callable[[LoadSample], None]) -> None:
        rig.now(item, started_at, ended)
        rig.stop.set()
        rig.clock.advance(60.0)

    drive = rig.run(prepared(0.5, *[1.0] * 400), stall)

    unsent = [s for s in drive.samples if s.outcome is LoadOutcome.UNSENT]
    assert len(drive.samples) == 401
    assert unsent
    assert {s.code for s in unsent} == {"unsent"}


def test_our_own_bug_is_not_a_sample():
    """A caller records what servers do wrong; what it raises is a fault of the generator and ends the run."""
    rig = Rig()

    def broken(item: Prepared, started_at: float, ended: Callable[[LoadSample], None]) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        rig.run(prepared(0.5), broken)


def test_a_closed_loop_holds_so_many_open_and_no_more():
    """Two at a time, each due when another ended: never late, and what the window left over is no failure."""
    rig = Rig()
    open_now: list[int] = []
    most: list[int] = []

    def script(item: Prepared, started_at: float, ended: Callable[[LoadSample], None]) -> None:
        open_now.append(item.planned.index)
        most.append(len(open_now))
        asyncio.get_running_loop().call_soon(answer, item, started_at, ended)

    def answer(item: Prepared, started_at: float, ended: Callable[[LoadSample], None]) -> None:
        rig.clock.advance(1.0)
        open_now.remove(item.planned.index)
        ended(record(item, item.planned.at_s))

    drive = rig.run(prepared(*[0.0] * 40), script, duration_s=10.0, concurrency=2)

    assert max(most) == 2
    assert 5 <= len(drive.samples) < 40
    assert [s.index for s in drive.samples] == list(range(len(drive.samples)))
    assert all(s.intended_s < 10.0 for s in drive.samples)


def test_a_closed_loop_ends_when_it_has_asked_everything():
    """Three requests do not take an hour."""
    rig = Rig()

    drive = rig.run(prepared(0.0, 0.0, 0.0), rig.now, duration_s=3600.0, concurrency=1)

    assert len(drive.samples) == 3
    assert drive.window_s < 1.0
