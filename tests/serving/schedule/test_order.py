"""Short requests pass long ones, and nobody waits for ever."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.schedule.order import Order
from serving.schedule.priority import waiting
from serving.schedule.shares import Shares
from tests.serving.schedule.virtual import Ask, bound, fifo, flood, p95, rules, run
from toolkit.core.sample import SloClass, WorkloadClass

SHORT, LONG = 300, 4000
REALTIME, STANDARD, BATCH = SloClass.REALTIME, SloClass.STANDARD, SloClass.BATCH


def queue(*asked, told=None):
    """An order holding (key, slo class, tokens, ready) in that sequence."""
    told = told or rules()
    order = Order(told, Shares(told.shares))
    for key, slo, tokens, ready in asked:
        order.put(waiting(told, key, slo, WorkloadClass.TEXT_ONLY, tokens, ready, 1e9))
    return order


def take(order, now):
    """Whoever goes next where all fit."""
    one = order.turn(now) or order.best(now, lambda _: True)
    order.enter(one, now)
    return one


def taken(order, *instants):
    return [take(order, now).key for now in instants]


def test_the_priority_is_the_product_of_waiting_and_length():
    """Weight 1, half its threshold waited, as long as short_tokens: 1.5 x 0.5."""
    one = waiting(rules(), "a", STANDARD, WorkloadClass.TEXT_ONLY, 1024, 10.0, 1e9)

    assert one.short
    assert one.priority(10.25, 1024) == pytest.approx(1.5 * 0.5)
    assert one.priority(10.0, 1024) == pytest.approx(0.5)


def test_a_short_request_passes_long_ones_before_any_threshold():
    """By the length coefficient alone."""
    order = queue(("long", STANDARD, LONG, 0.0), ("short", STANDARD, SHORT, 0.1))

    assert taken(order, 0.2, 0.2) == ["short", "long"]


def test_of_equals_the_first_goes_first():
    """Same class, same length: first in, first out."""
    order = queue(*((str(number), STANDARD, SHORT, 0.01 * number) for number in range(5)))

    assert taken(order, *[0.2] * 5) == ["0", "1", "2", "3", "4"]


def test_a_short_request_past_its_threshold_takes_the_next_slot():
    """However many long ones wait, and have waited longer, and are due themselves."""
    order = queue(*((f"long {number}", STANDARD, LONG, 0.0) for number in range(50)))
    taken(order, 2.0, 2.1)
    order.put(waiting(rules(), "short", STANDARD, WorkloadClass.TEXT_ONLY, SHORT, 2.2, 1e9))

    assert take(order, 2.3).key.startswith("long")  # not yet due, and the long ones are
    assert take(order, 2.75).key == "short"


def test_a_long_request_past_its_threshold_takes_the_next_slot_whatever_short_ones_wait():
    """Also when they keep coming and are due."""
    order = queue(
        ("long", STANDARD, LONG, 0.0), *((f"short {number}", STANDARD, SHORT, 0.5) for number in range(50))
    )
    before = taken(order, 1.1, 1.2, 1.3)

    assert all(key.startswith("short") for key in before)
    assert take(order, 1.5).key == "long"


def test_lanes_that_are_due_take_turns_by_weight():
    """Four realtime, one standard; within a lane by age."""
    order = queue(
        *((f"s{number}", STANDARD, SHORT, 0.0) for number in range(10)),
        *((f"r{number}", REALTIME, SHORT, 0.0) for number in range(10)),
    )

    first = taken(order, *[5.0] * 10)

    assert sum(key.startswith("r") for key in first) == 8
    assert [key for key in first if key.startswith("r")] == [f"r{number}" for number in range(8)]
    assert [key for key in first if key.startswith("s")] == ["s0", "s1"]


def test_a_lane_that_was_empty_gets_no_turns_back():
    """It starts where the others are, else it could lock them out."""
    order = queue(*((f"s{number}", STANDARD, SHORT, 0.0) for number in range(20)))
    taken(order, *[5.0] * 10)
    for number in range(10):
        order.put(waiting(rules(), f"l{number}", STANDARD, WorkloadClass.TEXT_ONLY, LONG, 5.0, 1e9))

    assert sum(key.startswith("l") for key in taken(order, *[9.0] * 6)) == 2


def test_short_ones_have_four_turns_for_one_of_the_long():
    """Of one class, all due: with one each, those that come more often would queue behind those that are rare and large."""
    order = queue(
        *((f"l{number}", STANDARD, LONG, 0.0) for number in range(10)),
        *((f"s{number}", STANDARD, SHORT, 0.0) for number in range(20)),
    )

    assert sum(key.startswith("s") for key in taken(order, *[9.0] * 20)) == 16


def test_the_expected_wait_counts_those_that_go_first_and_no_others():
    """A short one is not told of the long ones that it passes; a batch one is told of all."""
    order = queue(*((f"long {number}", STANDARD, LONG, 0.0) for number in range(10)))

    def wait(slo, tokens, now=0.1):
        one = waiting(rules(), "new", slo, WorkloadClass.TEXT_ONLY, tokens, now, 1e9)
        return order.wait_s(one, now, lambda short: 0.01 if short else 0.1)

    assert wait(STANDARD, SHORT) == 0.0
    assert wait(STANDARD, LONG * 2) == pytest.approx(1.0)
    assert wait(BATCH, SHORT) == pytest.approx(1.0)


def test_the_expected_wait_of_a_short_one_is_its_threshold_and_half_a_turn_at_most():
    """Behind any number of long ones that are due."""
    order = queue(*((f"long {number}", STANDARD, LONG, 0.0) for number in range(1000)))
    one = waiting(rules(), "new", STANDARD, WorkloadClass.TEXT_ONLY, SHORT, 9.0, 1e9)

    assert order.wait_s(one, 9.0, lambda _: 0.1) == pytest.approx(0.5 + 0.5 * 0.1)


ASKS = st.lists(
    st.builds(
        Ask,
        at=st.floats(0, 20),
        tokens=st.sampled_from([10, SHORT, 1024, 1025, LONG]),
        hold_s=st.floats(0.01, 3.0),
        slo_class=st.sampled_from(SloClass),
    ),
    min_size=1,
    max_size=60,
)


@st.composite
def streams(draw):
    """One or two lanes that get more than all slots can do for a while, and few others among them."""
    asks = [
        Ask(draw(st.floats(0, 2)), tokens, hold_s=0.05, slo_class=draw(st.sampled_from(SloClass)))
        for tokens in draw(st.lists(st.sampled_from([SHORT, LONG]), max_size=6))
    ]
    for _ in range(draw(st.integers(1, 2))):
        slo, tokens = draw(st.sampled_from(SloClass)), draw(st.sampled_from([SHORT, LONG]))
        gap_s, begin = draw(st.floats(0.01, 0.04)), draw(st.floats(0, 2))
        asks += [Ask(begin + number * gap_s, tokens, 0.05, slo_class=slo) for number in range(120)]
    return sorted(asks, key=lambda ask: ask.at)


def stream(tokens, other):
    """Of one length 2.5 times what the one slot can do in 4 s, and in the midst a single request of the other."""
    return [Ask(3.0, other, 0.05), *(Ask(0.02 * number, tokens, 0.05) for number in range(200))]


@given(asks=ASKS, slots=st.integers(1, 4))
@example(asks=[Ask(0.0, LONG, 3.0)] * 20 + [Ask(0.1, SHORT, 0.01)] * 20, slots=1)
@example(asks=stream(SHORT, LONG), slots=1)
@example(asks=stream(LONG, SHORT), slots=1)
@settings(max_examples=40, deadline=None)
def test_no_request_waits_longer_than_the_bound(asks, slots):
    """Whatever arrives, however long it stays."""
    told = rules(slots)
    fates = run(told, asks)

    for fate in fates:
        assert fate.wait_s <= bound(fate, fates, told, slots) + 1e-6


@pytest.mark.slow
@given(asks=streams(), slots=st.integers(1, 2))
@settings(max_examples=10, deadline=None)
def test_the_bound_holds_beside_streams_that_never_end(asks, slots):
    """The due of an overloaded lane wait for each other, not those of another one."""
    told = rules(slots)
    fates = run(told, asks)

    for fate in fates:
        assert fate.wait_s <= bound(fate, fates, told, slots) + 1e-6


@given(asks=ASKS, slots=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_the_bound_holds_with_the_least_slots_while_the_limit_moves(asks, slots):
    """Late first tokens shrink the limit; what is promised, is promised of its minimum."""
    told = rules(12, min_in_flight=slots, adaptive=True)
    for ask in asks:
        ask.first_s = ask.hold_s
    fates = run(told, asks)

    for fate in fates:
        assert fate.wait_s <= bound(fate, fates, told, slots) + 1e-6


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), long_load=st.floats(1.1, 1.6))
@settings(max_examples=8, deadline=None)
def test_short_ones_wait_half_as_long_beside_a_flood_of_long_ones_which_lose_little(seed, long_load):
    """Against first in, first out: at least twice as good at P95, long throughput down by a tenth at most."""
    asks = flood(seed, long_load, window_s=25.0)
    figures = {}
    for name, told in (("fifo", fifo()), ("priority", rules())):
        fates = run(told, asks)
        short = [fate.wait_s for fate in fates if fate.ask.workload_class is WorkloadClass.TEXT_ONLY]
        done = [fate for fate in fates if fate.ended <= 25.0 and fate.ask.tokens > 1024]
        figures[name] = p95(short), len(done)

    assert figures["priority"][0] <= figures["fifo"][0] / 2
    assert figures["priority"][1] >= 0.9 * figures["fifo"][1]
