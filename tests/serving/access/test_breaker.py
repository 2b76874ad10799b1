"""A service that fails is left alone, asked again by one call at a time, and used again once that succeeds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.access.breaker import Breaker, BreakerRule, Pass, State

RULE = BreakerRule(failures=3, hold_s=1.0, most_hold_s=8.0)


def enter(breaker: Breaker, now: float) -> Pass:
    held = breaker.enter(now)
    assert held is not None
    return held


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker(RULE)
    for _ in range(RULE.failures):
        breaker.failed(enter(breaker, now), now)
    return breaker


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    breaker = Breaker(RULE)
    for outcome in ("failed", "failed", "succeeded", "failed", "failed"):
        held = enter(breaker, 0)
        if outcome == "failed":
            breaker.failed(held, 0)
        else:
            breaker.succeeded(held)
    assert breaker.state(0) is State.CLOSED

    breaker.failed(enter(breaker, 5), 5)

    assert (breaker.state(5), breaker.enter(5.9), breaker.retry_after_s(5.25)) == (State.OPEN, None, 0.75)


def test_after_the_hold_one_probe_at_a_time_asks_again() -> None:
    breaker = opened()

    probe = enter(breaker, 1.0)

    assert breaker.state(1.0) is State.HALF_OPEN
    assert breaker.enter(1.0) is None
    breaker.succeeded(probe)
    assert breaker.state(1.0) is State.CLOSED
    assert breaker.enter(1.0) is not None


def test_each_failed_probe_doubles_the_hold_up_to_the_longest() -> None:
    breaker, now, holds = opened(), 0.0, []

    for _ in range(6):
        holds.append(breaker.retry_after_s(now))
        now += holds[-1]
        breaker.failed(enter(breaker, now), now)

    assert holds == [1, 2, 4, 8, 8, 8]


def test_a_success_makes_the_next_hold_the_first_again() -> None:
    breaker = opened()
    breaker.failed(enter(breaker, 1), 1)
    breaker.succeeded(enter(breaker, 3))

    for _ in range(RULE.failures):
        breaker.failed(enter(breaker, 4), 4)

    assert breaker.retry_after_s(4) == 1


def test_calls_that_fail_together_open_it_once() -> None:
    """They began before it opened: the hold is neither longer nor later for them."""
    breaker = Breaker(RULE)
    calls = [enter(breaker, 0) for _ in range(20)]

    for place, held in enumerate(calls):
        breaker.failed(held, place / 100)

    assert breaker.retry_after_s(0.02) == pytest.approx(1.0)


def test_what_began_before_says_nothing_about_the_probe() -> None:
    breaker = Breaker(RULE)
    early, late, *calls = [enter(breaker, 0) for _ in range(5)]
    for held in calls:
        breaker.failed(held, 0)
    probe = enter(breaker, 1)

    breaker.failed(early, 1)
    breaker.succeeded(late)

    assert breaker.state(1) is State.HALF_OPEN and breaker.enter(1) is None
    breaker.succeeded(probe)
    assert breaker.state(1) is State.CLOSED


def test_what_is_said_of_a_call_first_counts() -> None:
    """A caller that lost patience has said that it failed; the answer that comes later changes nothing."""
    breaker = Breaker(RULE)
    for _ in range(RULE.failures):
        held = enter(breaker, 0)
        breaker.failed(held, 0)
        breaker.succeeded(held)
        breaker.left(held)

    assert breaker.state(0) is State.OPEN


def test_a_probe_whose_caller_leaves_makes_room_for_another() -> None:
    breaker = opened()

    breaker.left(enter(breaker, 1))

    breaker.succeeded(enter(breaker, 1))
    assert breaker.state(1) is State.CLOSED


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "failed", "succeeded", "left"]), st.integers(0, 9), st.floats(0, 3)
        )
    )
)
def test_it_is_never_stuck(steps: list[tuple[str, int, float]]) -> None:
    """Whatever happens in whatever order: with every pass back, a call is let through within the longest hold."""
    breaker, now = Breaker(RULE), 0.0
    out: list[Pass] = []
    for step, place, passed_s in steps:
        now += passed_s
        if step == "enter":
            held = breaker.enter(now)
            out += [held] if held else []
        elif out:
            held = out.pop(place % len(out))
            if step == "failed":
                breaker.failed(held, now)
            elif step == "succeeded":
                breaker.succeeded(held)
            else:
                breaker.left(held)
    for held in out:
        breaker.left(held)

    assert breaker.retry_after_s(now) <= RULE.most_hold_s
    assert breaker.enter(now + RULE.most_hold_s) is not None
