"""A flood of one kind cannot push another below its share of the decodes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.schedule.admit import Admission
from serving.schedule.order import Order
from serving.schedule.priority import waiting
from serving.schedule.shares import Shares
from tests.serving.schedule.virtual import Ask, p95, pool, rules, run
from toolkit.core.errors import Busy
from toolkit.core.sample import SloClass, WorkloadClass

TEXT, IMAGE, LARGE = WorkloadClass.TEXT_ONLY, WorkloadClass.IMAGE_SHORT, WorkloadClass.HIGH_RES
LONG = WorkloadClass.MULTI_IMAGE_LONG
KINDS = {TEXT: "words", IMAGE: "pictures", LARGE: "photos"}


def shared(max_in_flight=8, words=1.0, pictures=1.0, photos=1.0, **fields):
    shares = {"words": words, "pictures": pictures, "photos": photos}
    return rules(max_in_flight, **{"kinds": KINDS, "shares": shares, **fields})


events = st.lists(
    st.tuples(
        st.sampled_from([TEXT, IMAGE, LARGE, None]),  # None: one of those inside leaves
        st.integers(1, 5000),
        st.sampled_from(list(SloClass)),
        st.floats(0, 2),
    ),
    min_size=20,
    max_size=70,
)
weights = st.floats(0.1, 10)


@given(events, st.integers(1, 8), st.tuples(weights, weights, weights), st.booleans())
@settings(max_examples=20, deadline=None)
def test_while_a_kind_below_its_share_waits_nobody_of_a_higher_rank_enters(all_, slots, shares, leased):
    """Over random arrivals, lengths, classes, stays and weights, with KV leases and without; and no slot idles beside who
    fits (Admission.check)."""
    told = shared(slots, *shares)
    admission, model, now = Admission(told), Shares(told.shares), 0.0
    if leased:
        admission.told("decode-0", pool(40_000), 0.0)
    admission.serve({"decode-0": 1.0}, 0.0)
    model.measure(slots, 40_000 if leased else 0)
    queued, inside, refused = {}, [], 0

    def moved(moves):
        for key in moves.entered:
            kind, tokens = queued.pop(key)
            fits = {other for other, (_, size) in queued.items() if not leased or size <= tokens}
            poorer = {queued[other][0] for other in fits}
            assert not any(model.below(one) and model.rank(one) < model.rank(kind) for one in poorer)
            model.hold(key, kind, tokens)
            inside.append(key)

    for number, (asked, tokens, slo, later) in enumerate(all_):
        now += later
        if asked is None:
            if inside:
                key = inside.pop(tokens % len(inside))
                model.release(key)
                moved(admission.leave(key, now))
        else:
            key = str(number)
            queued[key] = KINDS[asked], tokens
            try:
                admission.arrive(key, slo, now, 1e12)
                moved(admission.prepared(key, asked, tokens, now))
            except Busy:
                del queued[key]
                moved(admission.leave(key, now))
                refused += 1
        admission.check()
        assert {kind: admission.shares.held(kind) for kind in KINDS.values()} == {
            kind: model.held(kind) for kind in KINDS.values()
        }
    assert not refused


def mean_share(fates, kind_of_interest, since, until):
    """Of the tokens held between two instants, the part held by the kind."""
    held = dict.fromkeys(KINDS.values(), 0.0)
    for fate in fates:
        stay = max(0.0, min(fate.ended, until) - max(fate.entered, since))
        held[KINDS[fate.ask.workload_class]] += fate.ask.tokens * stay
    return held[kind_of_interest] / sum(held.values())


def flooded(flood, other, tokens=(4000, 400), count=(100, 260), begins=3.0):
    """A flood at once, and from some time on steadily more of another kind than its share lets in."""
    first = [Ask(0.001 * n, tokens[0], 2.0, 0.1, workload_class=flood) for n in range(count[0])]
    second = [Ask(begins + 0.025 * n, tokens[1], 0.5, 0.1, workload_class=other) for n in range(count[1])]
    return first + second


def test_a_kind_that_wants_more_than_its_share_gets_it_in_the_midst_of_a_flood():
    """Of all tokens held, one part of two, and three of four where its weight says so; the flood takes what is left."""
    asks = flooded(IMAGE, TEXT, tokens=(1000, 1000))
    for weight, part in ((1.0, 0.5), (3.0, 0.75)):
        told = rules(8, kinds=KINDS, shares={"words": weight, "pictures": 1.0})
        got = mean_share(run(told, asks), "words", 6.0, 10.0)
        assert abs(got - part) < 0.08, got


def test_many_small_ones_take_slots_and_few_large_ones_kv():
    """Whichever of the two a kind has more of counts: 6 of 8 slots are as much as 6,000 of 8,000 tokens."""
    shares = Shares({"words": 1.0, "photos": 1.0})
    shares.measure(8, 8000)
    for number in range(6):
        shares.hold(f"word {number}", "words", 10)
    shares.hold("photo", "photos", 6000)
    assert shares.rank("words") == shares.rank("photos") == 0.75

    shares.measure(8, 0)
    assert shares.rank("photos") == 1 / 8 and shares.below("photos") and not shares.below("words")


def test_the_expected_wait_is_for_a_kinds_own_part_of_the_slots():
    """Beside others that take half of them a line of eight takes twice as long; a short line of another kind does not matter."""
    told = rules(8, kinds=KINDS, shares={"words": 1.0, "pictures": 1.0})
    shares = Shares(told.shares)
    shares.measure(8, 0)
    order = Order(told, shares)
    for number in range(8):
        order.put(waiting_of(told, f"picture {number}", IMAGE))
    alone_s = order.wait_s(waiting_of(told, "next", IMAGE), 0.0, lambda _: 0.1)
    for number in range(8):
        shares.hold(f"inside {number}", "words" if number % 2 else "pictures", 1)

    assert order.wait_s(waiting_of(told, "next", IMAGE), 0.0, lambda _: 0.1) == 2 * alone_s > 0
    assert order.wait_s(waiting_of(told, "text", TEXT), 0.0, lambda _: 0.1) == 0
    assert order.wait_s(waiting_of(told, "?", WorkloadClass.UNCLASSIFIED), 0.0, lambda _: 0.1) == 0


def waiting_of(told, key, workload_class):
    return waiting(told, key, SloClass.BATCH, workload_class, 4000, 0.0, 1e9)


def test_without_shares_the_same_flood_pushes_it_aside():
    """Both are long and of one SLO class, so they stand in one lane, behind all that came first."""
    asks = flooded(IMAGE, TEXT, tokens=(4000, 4000))

    assert mean_share(run(rules(8), asks), "words", 6.0, 10.0) < 0.1


def test_without_pools_nobody_is_due_before_its_time():
    """There is one kind, however much it holds."""
    alone, two = Shares({}), Shares({"words": 1.0, "pictures": 1.0})
    for shares in (alone, two):
        shares.hold("a", "pictures" if shares is two else "", 100)

    assert not alone.below("") and not two.below("pictures")
    assert two.below("words")
    two.release("a")
    assert not two.below("words")


def test_what_a_kind_does_not_use_others_take():
    """Alone, one kind of three fills all slots; a few of another then go first and wait for one slot at most."""
    alone = run(shared(8), [Ask(0.0, 1000, 1.0, 0.1, workload_class=IMAGE) for _ in range(80)])
    assert max(fate.ended for fate in alone) == 10.0

    asks = flooded(IMAGE, TEXT, count=(150, 8))
    few = [fate for fate in run(shared(8), asks) if fate.ask.workload_class is TEXT]
    assert p95([fate.wait_s for fate in few]) <= 2.0


def test_a_flood_does_not_have_others_refused_early():
    """Neither for lack of a seat nor for a wait that is not theirs; it is the flood that is told."""
    told = shared(8, max_waiting=60)
    flood = [Ask(0.01 * n, 4000, 1.0, 0.2, 3.0, workload_class=IMAGE) for n in range(1000)]
    others = [Ask(2.0 + 0.2 * n, 300, 0.3, 0.1, 3.0, workload_class=TEXT) for n in range(40)]
    fates = run(told, sorted(flood + others, key=lambda ask: ask.at))

    assert all(fate.good for fate in fates if fate.ask.workload_class is TEXT)
    assert sum(fate.refused is not None for fate in fates if fate.ask.workload_class is IMAGE) > 500


def test_a_flood_is_told_before_its_images_are_decoded_and_nobody_else_is():
    """On arrival the kind is not known; once the body is read it is, unless what its images are makes the difference."""
    together = rules(
        1, kinds={**KINDS, LARGE: "pictures", LONG: "pictures"}, shares={"words": 1.0, "pictures": 1.0}
    )
    apart = shared(1, kinds={**KINDS, LONG: "pictures"})
    told = {}
    for name, by in (("together", together), ("apart", apart)):
        admission = Admission(by)
        for number in range(12):
            admission.arrive(f"flood {number}", SloClass.STANDARD, 0.0, 1e9)
            admission.prepared(f"flood {number}", IMAGE, 4000, 0.0)
        admission.answered("flood 0", 1.0, 1.0)
        admission.leave("flood 0", 2.0)
        for asked in (IMAGE, TEXT):
            key = f"{name} {asked}"
            admission.arrive(key, SloClass.STANDARD, 2.0, 8.0)
            try:
                admission.sort(key, asked, 2.0)
                told[key] = "seated"
            except Busy as error:
                told[key] = error.code.code

    assert told == {
        "together image_short": "queue_too_long",
        "together text_only": "seated",
        "apart image_short": "seated",
        "apart text_only": "seated",
    }
