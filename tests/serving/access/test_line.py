"""A lane's line: in turn, within workers and memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.access.cost import Cost
from serving.access.line import Line
from toolkit.core.errors import Busy, TooLarge


def line(workers: int = 2, memory: int = 100, waiting: int = 4) -> Line[str]:
    return Line("heavy", workers, memory, waiting)


def test_memory_holds_back_what_a_worker_would_be_free_for() -> None:
    """Two workers, but the second image does not fit beside the first."""
    queue = line()
    assert queue.join("a", Cost(70, 1.0)) == ["a"]
    assert queue.join("b", Cost(40, 1.0)) == []
    assert queue.done("a", 1.0) == ["b"]


def test_an_image_that_never_fits_is_told_so() -> None:
    with pytest.raises(TooLarge, match=r"takes 3 MB .* 2 MB") as caught:
        line(memory=2_000_000).join("a", Cost(2_500_000, 1.0))
    assert caught.value.code.code == "image_too_large"


def test_a_full_line_says_when_to_come_back() -> None:
    """The time that the work ahead takes, as fast as work went lately."""
    queue = line(workers=1, waiting=1)
    queue.join("a", Cost(1, 4.0))
    queue.join("b", Cost(1, 6.0))
    with pytest.raises(Busy) as caught:
        queue.join("c", Cost(1, 1.0))
    assert caught.value.retry_after_s == 10.0


def test_waits_are_foretold_by_what_work_took() -> None:
    """On a host at half the speed, the foreseen wait tends to twice the estimate."""
    queue = line(workers=1)
    for _ in range(60):
        queue.join("a", Cost(1, 1.0))
        queue.done("a", 2.0)
    queue.join("a", Cost(1, 1.0))
    assert queue.wait_s() == pytest.approx(2.0, rel=0.01)


@given(st.lists(st.tuples(st.integers(1, 100), st.booleans()), max_size=40), st.integers(1, 4))
def test_bounds_and_order_hold_whatever_comes(jobs: list[tuple[int, bool]], workers: int) -> None:
    """Started in order of arrival, never over memory or workers; all that stay get their turn."""
    queue: Line[int] = Line("heavy", workers, 100, 1000)
    started: list[int] = []
    for key, (memory, stays) in enumerate(jobs):
        started += queue.join(key, Cost(memory, 0.1))
        if not stays and key not in started:
            started += queue.leave(key)
        queue.check()
    ended = 0
    while ended < len(started):
        started += queue.done(started[ended], 0.1)
        ended += 1
        queue.check()
    assert started == sorted(started)
    assert (queue.working, queue.waiting, queue.taken_bytes) == (0, 0, 0)
