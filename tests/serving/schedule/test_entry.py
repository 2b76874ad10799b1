"""Who enters when KV is short: those who fit, and whoever is due for certain."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.schedule.admit import Admission, Place
from serving.schedule.lease import Need
from tests.serving.schedule.virtual import Ask, bound, p95, pool, rules, run
from toolkit.core.errors import Busy, TooLarge
from toolkit.core.sample import SloClass, WorkloadClass

STANDARD = SloClass.STANDARD
TEXT = WorkloadClass.TEXT_ONLY


class Desk:
    """An admission over decodes of 1,000 tokens, 300 of them for one; up to 120 are short: due after 0.5 s, others after 1.5 s."""

    def __init__(self, *decodes, slots=64):
        self.rules = {"max_in_flight": slots, "short_tokens": 120}
        self.admission = Admission(rules(**self.rules, lease_cap=0.3))
        for name in decodes:
            self.admission.told(name, pool(1000), 0.0)
        self.admission.serve(dict.fromkeys(decodes, 1.0), 0.0)

    def ask(self, key, tokens, now):
        self.admission.arrive(key, STANDARD, now, 1e9)
        entered = self.admission.prepared(key, TEXT, tokens, now).entered
        self.admission.check()
        return entered

    def leave(self, key, now):
        entered = self.admission.leave(key, now).entered
        self.admission.check()
        return entered

    def others_use(self, decode, tokens, now):
        entered = self.admission.told(decode, pool(1000, used=tokens, stamp=("others", now)), now).entered
        self.admission.check()
        return entered


def test_a_request_enters_only_when_a_slot_and_its_pages_are_free():
    """Four of 250 tokens fill 1,000; the fifth waits for one of them, slots or not."""
    desk = Desk("a")

    assert [desk.ask(str(number), 250, 0.0) for number in range(5)] == [["0"], ["1"], ["2"], ["3"], []]
    assert desk.admission.lacking == 1
    assert desk.leave("2", 0.25) == ["4"]
    assert desk.admission.lacked_s("4", 9.0) == 0.25
    assert desk.admission.lacking == 0


def test_one_that_is_not_due_is_passed_by_those_who_fit():
    """200 tokens are free: not enough for 250, enough for 100."""
    desk = Desk("a")
    desk.others_use("a", 800, 0.0)

    assert desk.ask("large", 250, 0.1) == []
    assert desk.ask("small", 100, 0.2) == ["small"]


def test_once_due_its_pages_gather_as_others_finish():
    """Small ones that come later take none of them any more, and fill what it leaves."""
    desk = Desk("a")
    for number in range(10):
        desk.ask(f"held {number}", 100, 0.0)
    desk.ask("large", 250, 0.0)

    assert desk.leave("held 0", 1.6) == []
    assert desk.leave("held 1", 1.7) == []
    assert desk.ask("small", 50, 1.8) == []
    assert desk.leave("held 2", 1.9) == ["large", "small"]


def test_who_waits_no_longer_keeps_nothing():
    """Its client hung up: the pages are everybody's again."""
    desk = Desk("a")
    desk.others_use("a", 800, 0.0)
    desk.ask("large", 250, 0.0)
    desk.ask("small", 100, 1.6)

    assert desk.admission.place("small") is Place.QUEUED
    assert desk.leave("large", 1.7) == ["small"]


def test_beside_the_decode_that_is_kept_for_it_others_go_on():
    """Where it does not fit anyway, while slots are left for it."""
    desk = Desk("a", "b", slots=2)
    desk.others_use("a", 800, 0.0)
    desk.others_use("b", 850, 0.0)
    desk.ask("large", 250, 0.0)

    assert desk.ask("first", 50, 1.6) == ["first"]
    assert desk.admission.leases.place("first") == "b"
    assert desk.ask("second", 50, 1.7) == []  # the other slot is for the large one
    assert desk.others_use("a", 700, 1.8) == ["large"]


def test_a_decode_that_stops_serving_is_kept_for_nobody():
    """The next one is, as long as a decode is left that is large enough."""
    desk = Desk("a", "b")
    desk.others_use("a", 800, 0.0)
    desk.others_use("b", 850, 0.0)
    desk.ask("large", 250, 0.0)
    desk.ask("small", 160, 1.6)
    assert desk.admission.leases.reserved == "a"

    desk.admission.serve({"b": 1.0}, 1.7)
    assert desk.admission.leases.reserved == "b"
    assert desk.others_use("b", 700, 1.8) == ["large"]


def test_who_may_not_have_so_much_any_more_is_told_so():
    """An operator lowers the cap to 20 %: what runs goes on, what waits for more is refused."""
    desk = Desk("a")
    for number in range(5):
        desk.ask(str(number), 250, 0.0)

    moves = desk.admission.retune(rules(**desk.rules, lease_cap=0.2), 0.1)

    assert [(key, error.code.code) for key, error in moves.refused] == [("4", "kv_lease_exceeded")]
    assert desk.admission.running == 4
    desk.leave("4", 0.1)
    assert desk.ask("small", 200, 0.2) == []


def test_a_queue_that_lacks_kv_is_reckoned_with_before_anybody_joins_it():
    """Two at a time, a second each: behind two more a budget of 1.5 s is hopeless, and slots are free all the while."""
    desk = Desk("a")
    desk.others_use("a", 400, 0.0)
    for number in range(2):
        desk.ask(f"before {number}", 300, 99.0)
    for number in range(2):
        desk.leave(f"before {number}", 100.0)
        desk.ask(f"held {number}", 300, 100.0)
    for number in range(2):
        desk.ask(f"ahead {number}", 300, 100.0)
    assert desk.admission.running == 2

    with pytest.raises(Busy) as refused:
        desk.admission.arrive("late", STANDARD, 100.0, 101.5)

    assert refused.value.code.code == "queue_too_long"


def test_who_comes_while_only_long_ones_wait_may_be_short():
    """The short ones have passed them: no reason to refuse the next one for the time that a long one would wait."""
    desk = Desk("a")
    for number in range(3):
        desk.ask(f"before {number}", 300, 90.0)
    for number in range(3):
        desk.leave(f"before {number}", 100.0)
        desk.ask(f"held {number}", 300, 100.0)
    for number in range(9):
        desk.ask(f"long {number}", 300, 100.0)
    desk.ask("short", 90, 100.0)
    assert desk.admission.place("short") is Place.RUNNING

    desk.admission.arrive("next", STANDARD, 100.1, 110.1)
    desk.leave("next", 100.1)


POOL = 20_000
CAP = 0.3
LEASES = st.sampled_from([10, 300, 1024, 1025, 4000, 6000])
ASKS = st.lists(
    st.builds(
        Ask,
        at=st.floats(0, 10),
        tokens=LEASES,
        hold_s=st.floats(0.01, 3.0),
        slo_class=st.sampled_from(SloClass),
    ),
    min_size=1,
    max_size=60,
)


def largest_at_once(page_size, others):
    """M of admit.py."""
    pages = POOL // page_size
    return (pages - -(-others // page_size)) // int(CAP * pages)


def check_bound(asks, slots, decodes, page_size, looks):
    told = rules(slots, lease_cap=CAP)
    pools = {f"decode-{number}": pool(POOL, page_size) for number in range(decodes)}
    others = max((used for _, _, used in looks), default=0)
    reports = [
        (at, f"decode-{number % decodes}", pool(POOL, page_size, used, at)) for at, number, used in looks
    ]
    fates = run(told, asks, decodes=pools, looks=reports)

    for fate in fates:
        at_once = min(slots, largest_at_once(page_size, others))
        assert fate.wait_s <= bound(fate, fates, told, at_once) + 1e-6


@given(
    asks=ASKS,
    slots=st.sampled_from([1, 2, 4, 8, 64]),
    decodes=st.integers(1, 3),
    page_size=st.sampled_from([1, 16]),
    looks=st.lists(st.tuples(st.floats(0, 15), st.integers(0, 2), st.integers(0, POOL // 2)), max_size=6),
)
@example(
    asks=[Ask(0.0, 6000, 3.0)] * 20 + [Ask(0.1, 300, 0.01)] * 20, slots=64, decodes=1, page_size=1, looks=[]
)
@example(
    asks=[Ask(0.01 * n, 4000 if n % 7 else 6000, 1.0) for n in range(60)],
    slots=8,
    decodes=2,
    page_size=16,
    looks=[],
)
@settings(max_examples=60, deadline=None)
def test_no_request_waits_longer_than_the_bound_for_its_slot_and_its_pages(
    asks, slots, decodes, page_size, looks
):
    """Whatever arrives, however long it stays, whatever others use meanwhile (up to half)."""
    check_bound(asks, slots, decodes, page_size, looks)


def stream(tokens, load, slo_class=STANDARD, first=0.05, seconds=5.0):
    """A large one among others that take all pages and more, one after the other."""
    gap_s = 0.3 * tokens / POOL / load
    others = (Ask(number * gap_s, tokens, 0.3, slo_class=slo_class) for number in range(int(seconds / gap_s)))
    return sorted([Ask(first, 6000, 0.3), *others], key=lambda ask: ask.at)


@given(
    asks=st.builds(
        stream,
        st.sampled_from([2500, 4000]),
        st.floats(1.2, 2.0),
        st.sampled_from([SloClass.REALTIME, STANDARD]),
        st.floats(0.01, 0.2),
    ),
    slots=st.sampled_from([8, 64]),
    decodes=st.integers(1, 2),
)
@example(asks=stream(4000, 1.6), slots=64, decodes=1)
@settings(max_examples=6, deadline=None)
def test_a_large_one_is_never_starved_by_a_stream_of_smaller_ones(asks, slots, decodes):
    """They would take every page that frees: once it is due, they may not."""
    check_bound(asks, slots, decodes, 1, [])


def test_where_kv_is_what_lacks_short_ones_still_pass():
    """A pool that is asked for 1.3 times over by long requests of a tenth to a quarter of it: who is short waits its half
    second and for one of them, not in their queue."""
    source = random.Random(5)
    asks, now = [], 0.0
    while now < 40.0:
        now += source.expovariate(5.0)
        if source.random() < 0.35:
            asks.append(Ask(now, source.randint(2000, 5000), source.uniform(1.5, 3.0), 0.1, 20.0))
        else:
            asks.append(Ask(now, source.randint(100, 400), source.uniform(0.2, 0.6), 0.1, 20.0))
    fates = run(rules(64, lease_cap=CAP), asks, decodes={"a": pool(10_000, 16)})
    short = [fate.wait_s for fate in fates if fate.ask.tokens <= 1024]
    long = [fate for fate in fates if fate.ask.tokens > 1024 and fate.ask.tokens <= CAP * 10_000]

    assert p95(short) < 1.5
    assert sum(fate.good for fate in long) >= 0.7 * len(long)


@given(seed=st.integers(0, 10**9))
@settings(max_examples=20, deadline=None)
def test_every_page_is_given_back_whatever_happens(seed):
    """Arrivals, hang-ups, retries elsewhere, late reports, restarts, other caps, in any order; books balanced after each."""
    source = random.Random(seed)
    decodes = ["a", "b", "c"]
    admission = Admission(rules(8, 40, lease_cap=0.3))
    alive: list[str] = []
    for step in range(150):
        now, decode = 0.05 * step, source.choice(decodes)
        what = source.choice(["ask", "ask", "ask", "leave", "leave", "move", "told", "gone", "serve", "cap"])
        key = source.choice(alive) if alive else ""
        if what == "ask":
            key = f"r{step}"
            alive.append(key)
            try:
                admission.arrive(key, source.choice(list(SloClass)), now, now + source.uniform(0.1, 5))
                need = Need(source.randint(1, 400), choices=source.randint(1, 3))
                refused = admission.prepared(key, TEXT, need.each * need.choices, now, need).refused
            except (Busy, TooLarge):
                refused = [(key, None)]
        elif what == "leave" and key:
            refused = [(key, None)]
        elif what == "move" and admission.place(key) is Place.RUNNING:
            choice = source.randrange(len(admission.leases._held[key].places))
            moves = admission.move(key, choice, decode, now)
            refused = moves.refused if moves is not None else []
        elif what == "told":
            report = pool(source.choice([1000, 1600]), source.choice([1, 16]), source.randint(0, 900), step)
            refused = admission.told(decode, report, now).refused
        elif what == "gone":
            refused = admission.told(decode, None, now).refused
        elif what == "serve":
            refused = admission.serve(
                dict.fromkeys(source.sample(decodes, source.randint(0, 3)), 1.0), now
            ).refused
        elif what == "cap":
            refused = admission.retune(rules(8, 40, lease_cap=source.choice([0.1, 0.3, 1.0])), now).refused
        else:
            continue
        while refused:
            one = refused.pop()[0]
            alive = [other for other in alive if other != one]
            refused += admission.leave(one, now).refused
        admission.check()
    for key in alive:
        admission.leave(key, 100.0)
    admission.check()
    assert admission.idle
    assert all(one.leased == 0 for one in admission.leases.pools.values())
