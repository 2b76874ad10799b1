"""Each has its share of a pool, and what one leaves the others may use."""

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.schedule.shared.fair import FLOOR, Demand, max_min, targets

PAGES = 1600
WEIGHTS = {"realtime": 4.0, "standard": 1.0, "batch": 0.25}
DEMAND = st.builds(
    Demand,
    st.dictionaries(st.sampled_from(["realtime", "standard", "batch", "unheard of"]), st.integers(0, 5000)),
    st.integers(0, 240),
    st.floats(0, 100),
)
EVERYBODY = st.dictionaries(st.sampled_from("abcde"), DEMAND, min_size=1)


def test_parts_are_weighted_and_never_above_the_demand() -> None:
    given = max_min(100, {"a": 10, "b": 500, "c": 500}, {"a": 1, "b": 2, "c": 1})

    assert given == {"a": 10, "b": 60, "c": 30}


@settings(max_examples=20, deadline=None)
@given(EVERYBODY)
def test_the_parts_are_the_pool_and_no_more(asked: dict[str, Demand]) -> None:
    parts = targets(PAGES, asked, WEIGHTS)

    assert PAGES - 4 * len(asked) <= sum(parts.values()) <= PAGES
    assert all(part >= 0 for part in parts.values())


@settings(max_examples=20, deadline=None)
@given(EVERYBODY)
def test_nobody_lacks_pages_while_another_has_more_than_it_asks_for(asked: dict[str, Demand]) -> None:
    """But for the floors and for what a large request needs at once."""
    parts = targets(PAGES, asked, WEIGHTS)
    demand = {gateway: sum(one.by_class.values()) for gateway, one in asked.items()}
    floor = PAGES // (FLOOR * len(asked))
    lacks = [gateway for gateway in asked if parts[gateway] < demand[gateway] - 4 * len(asked)]

    if lacks:
        for gateway, one in asked.items():
            assert parts[gateway] <= max(demand[gateway], floor, one.largest) + 4 * len(asked)


@settings(max_examples=20, deadline=None)
@given(EVERYBODY, st.integers(0, 5000))
def test_a_flood_of_one_class_through_one_gateway_leaves_another_class_its_share(
    asked: dict[str, Demand], wanted: int
) -> None:
    """Of two classes of equal weight, half of the pool, or what it asks for; but for the one lease that the other waits for."""
    flood = Demand({"batch": 1_000_000}, 240, 60.0)
    parts = targets(PAGES, {"one": flood, "two": Demand({"other": wanted})}, {"batch": 1.0, "other": 1.0})

    assert parts["two"] >= min(wanted, PAGES // 2) - 4


def test_weights_count_across_gateways() -> None:
    flood = {"standard": 10_000}
    asked = {"one": Demand(flood), "two": Demand(flood), "three": Demand({"realtime": 10_000})}
    parts = targets(PAGES, asked, WEIGHTS)

    assert parts["three"] >= 0.75 * PAGES
    assert abs(parts["one"] - parts["two"]) <= 1


def test_a_gateway_with_nothing_to_do_has_a_floor_for_who_comes_next() -> None:
    parts = targets(PAGES, {"one": Demand({"standard": 10_000}), "two": Demand()}, WEIGHTS)

    assert parts == {"one": PAGES - PAGES // 32, "two": PAGES // 32}


def test_the_largest_that_waits_fits_in_the_end_however_many_gateways_there_are() -> None:
    """Where not all of them can have that much at once, the one that has waited longest has."""
    asked = {f"g{n}": Demand({"standard": 10_000}, 240, waited_s=n) for n in range(20)}
    parts = targets(PAGES, asked, WEIGHTS)

    assert parts["g19"] == parts["g18"] == 240
    assert sum(parts.values()) <= PAGES
