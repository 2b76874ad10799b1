"""The KV pool."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engines.simulated.pool import NoRoom, PagePool

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["extend", "release", "leak", "rename", "flush"]),
        st.integers(0, 4),
        st.integers(0, 30),
    ),
    max_size=60,
)


@settings(max_examples=50)
@given(actions=ACTIONS, page_size=st.sampled_from([1, 4, 16]))
def test_every_page_is_free_held_or_leaked(actions: list[tuple[str, int, int]], page_size: int) -> None:
    """Whatever is asked in whatever order, refusals included."""
    pool = PagePool(128, page_size)
    for what, owner, tokens in actions:
        try:
            if what == "extend":
                pool.extend(str(owner), tokens)
            elif what == "release":
                pool.release(str(owner))
            elif what == "leak":
                pool.release(str(owner), leak=2)
            elif what == "rename":
                pool.rename(str(owner), str(owner + 10))
            else:
                pool.flush()
        except (NoRoom, ValueError):
            pass
        pool.check()


def test_a_refusal_changes_nothing() -> None:
    """The owner keeps what it had."""
    pool = PagePool(8)
    pool.extend("a", 6)

    with pytest.raises(NoRoom):
        pool.extend("a", 3)
    assert (pool.holds("a"), pool.free_tokens) == (6, 2)


def test_a_page_is_taken_whole() -> None:
    """One token more than a page holds takes a second page."""
    pool = PagePool(64, 16)
    pool.extend("a", 16)
    assert pool.used_tokens == 16
    pool.extend("a", 1)
    assert pool.used_tokens == 32


def test_leaked_pages_come_back_with_a_flush() -> None:
    """Until then nobody can have them."""
    pool = PagePool(10)
    pool.extend("a", 10)
    pool.release("a", leak=3)

    assert (pool.free_tokens, pool.leaked_pages) == (7, 3)
    pool.flush()
    assert pool.free_tokens == 10
