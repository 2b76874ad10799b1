"""The restart table, event by event."""

import pytest

from serving.config import SupervisorConfig
from serving.engines.restart import Event, IllegalEvent, Restart, State

CONFIG = SupervisorConfig(backoff_s=1, max_backoff_s=5, crash_loop_exits=4, crash_loop_window_s=100)


def ready() -> Restart:
    machine = Restart(CONFIG)
    machine.apply(Event.BECAME_READY, 0)
    return machine


def crash(machine: Restart, now_s: float) -> State:
    state = machine.apply(Event.EXITED, now_s)
    if state is State.BACKOFF:
        machine.apply(Event.BACKOFF_OVER, now_s)
        machine.apply(Event.BECAME_READY, now_s)
    return state


def test_a_process_that_was_never_ready_is_given_up_at_once() -> None:
    """A wrong flag does not heal by waiting; the user should see the log now."""
    machine = Restart(CONFIG)

    assert machine.apply(Event.EXITED, 0) is State.GIVEN_UP
    assert not machine.crash_loop


def test_the_wait_doubles_up_to_its_limit() -> None:
    """1, 2, 4, then 5 seconds."""
    machine = Restart(CONFIG.model_copy(update={"crash_loop_exits": 99}))
    machine.apply(Event.BECAME_READY, 0)
    waits = []
    for _ in range(5):
        machine.apply(Event.EXITED, 0)
        waits.append(machine.wait_s)
        machine.apply(Event.BACKOFF_OVER, 0)

    assert waits == [1, 2, 4, 5, 5]


def test_too_many_exits_within_the_window_are_a_crash_loop() -> None:
    """The fourth exit ends it."""
    machine = ready()

    assert [crash(machine, now) for now in (0, 10, 20, 30)] == [State.BACKOFF] * 3 + [State.GIVEN_UP]
    assert machine.crash_loop


def test_exits_far_apart_are_forgiven() -> None:
    """An exit leaves the window after its length, and the wait is short again."""
    machine = ready()

    assert [crash(machine, now) for now in (0, 50, 101, 151, 202)] == [State.BACKOFF] * 5
    machine.apply(Event.EXITED, 500)
    assert machine.wait_s == 1


@pytest.mark.parametrize("before", [(), (Event.BECAME_READY,)], ids=["starting", "ready"])
def test_stopping_waits_for_the_exit(before: tuple[Event, ...]) -> None:
    """An exit after STOP is the end, not a crash; a second STOP and a late readiness change nothing."""
    machine = Restart(CONFIG)
    for event in before:
        machine.apply(event, 0)

    assert machine.apply(Event.STOP, 0) is State.STOPPING
    assert machine.apply(Event.STOP, 0) is State.STOPPING
    assert machine.apply(Event.BECAME_READY, 0) is State.STOPPING
    assert machine.apply(Event.EXITED, 0) is State.STOPPED


def test_stopping_in_backoff_is_immediate() -> None:
    """Nothing runs then."""
    machine = ready()
    machine.apply(Event.EXITED, 0)

    assert machine.apply(Event.STOP, 0) is State.STOPPED


@pytest.mark.parametrize("event", [Event.BECAME_READY, Event.EXITED])
def test_an_illegal_event_changes_nothing(event: Event) -> None:
    """The state is as it was, and the caller learns of its bug."""
    machine = ready()
    machine.apply(Event.EXITED, 0)

    with pytest.raises(IllegalEvent):
        machine.apply(event, 0)
    assert repr(machine) == "<Restart backoff, 1 starts, 1 recent exits>"
