"""What is remembered, and never more than that."""

from hypothesis import given
from hypothesis import strategies as st

from serving.access.cache import ENTRY_BYTES, Store

BOUND = 10 * ENTRY_BYTES

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "get", "drop"]),
        st.integers(0, 12),
        st.integers(0, 6 * ENTRY_BYTES),
        st.floats(0, 50),
    ),
    max_size=30,
)


@given(steps=STEPS, bound=st.integers(0, BOUND))
def test_the_bytes_never_pass_the_bound(steps: list[tuple[str, int, int, float]], bound: int) -> None:
    """Whatever comes in whatever order; and what is found is what was put last, within its time."""
    store: Store[int, tuple[int, int]] = Store(bound)
    last: dict[int, tuple[tuple[int, int], float]] = {}
    for now, (step, key, size, keep_s) in enumerate(steps):
        if step == "put":
            last[key] = ((key, now), now + keep_s)
            store.put(key, (key, now), size, ends=now + keep_s)
        elif step == "drop":
            store.drop(key)
            last.pop(key, None)
        else:
            found = store.get(key, now)
            assert found is None or (found == last[key][0] and now < last[key][1])

        store.check()
        assert store.size_bytes <= bound


def test_least_recently_used_goes_first() -> None:
    """Being found is being used."""
    store: Store[str, int] = Store(3 * ENTRY_BYTES)
    for place, key in enumerate("abc"):
        store.put(key, place, 0)
    assert store.get("a", 0) == 0
    store.put("d", 3, 0)

    assert [store.get(key, 0) for key in "abcd"] == [0, None, 2, 3]


def test_too_large_alone_is_not_kept_and_displaces_nothing() -> None:
    """One huge picture does not empty the cache; the older value under its key is gone all the same."""
    store: Store[str, int] = Store(3 * ENTRY_BYTES)
    store.put("a", 1, 0)
    store.put("b", 2, 0)
    store.put("b", 3, 3 * ENTRY_BYTES)

    assert (store.get("a", 0), store.get("b", 0), len(store)) == (1, None, 1)


def test_nothing_is_kept_of_no_bytes() -> None:
    """0 is off."""
    store: Store[str, int] = Store(0)
    store.put("a", 1, 0)

    assert (store.get("a", 0), store.size_bytes) == (None, 0)
