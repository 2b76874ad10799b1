"""Transfers that share a link."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.simulated.link import Link


def test_one_alone_has_it_all() -> None:
    """Latency, then its bytes at the full rate."""
    link = Link(100.0)
    link.begin("a", 200.0, 1.0)

    assert link.next_at() == 1.0
    assert link.until(2.9) == []
    assert link.next_at() == pytest.approx(3.0)
    assert link.until(3.1) == ["a"] and len(link) == 0


def test_two_share_it_equally_while_both_are_under_way() -> None:
    """a moves 100 bytes alone, then both at half the rate, then what is left of b alone."""
    link = Link(100.0)
    link.begin("a", 200.0, 0.0)
    link.begin("b", 200.0, 1.0)

    assert link.until(2.99) == []
    assert link.until(3.01) == ["a"]
    assert link.next_at() == pytest.approx(4.0)
    assert link.until(4.01) == ["b"]


def test_a_cancelled_one_leaves_its_share_to_the_others() -> None:
    """And is never told as ended."""
    link = Link(100.0)
    for name in "ab":
        link.begin(name, 200.0, 0.0)
    link.until(2.0)
    link.cancel("b")

    assert link.next_at() == pytest.approx(3.0)
    assert link.until(9.0) == ["a"]


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(1, 1e6)), min_size=1, max_size=8), st.integers(1, 9))
def test_all_end_once_and_no_faster_than_the_link(given: list[tuple[float, float]], looks: int) -> None:
    """However often it is looked at; the last ends when all bytes can have passed, and alone none is slower than its share."""
    link = Link(1000.0)
    for number, (starts, size) in enumerate(given):
        link.begin(str(number), size, starts)
    ended: list[str] = []
    last = 0.0
    for _ in range(1000):
        at = link.next_at()
        if at is None:
            break
        for look in range(1, looks):
            ended += link.until(last + (at - last) * look / looks)
        ended += link.until(at)
        last = at

    assert sorted(ended) == sorted(str(number) for number in range(len(given)))
    total_s = sum(size for _, size in given) / 1000
    assert last >= min(starts for starts, _ in given) + total_s - 1e-6 or last >= total_s - 1e-6
    assert last <= max(starts for starts, _ in given) + total_s + 1e-6
