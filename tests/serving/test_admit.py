"""Seats and slots: bounded, in shares, refused early where it is too late, balanced."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.config import ServeConfig
from serving.schedule.admit import Admission, AdmissionError, Place
from serving.schedule.configured import rules_of
from serving.schedule.priority import Treatment
from tests.serving.schedule.virtual import Ask, Prefill, rules, run
from toolkit.core.errors import Busy
from toolkit.core.sample import SloClass, WorkloadClass

STANDARD, REALTIME, BATCH = SloClass.STANDARD, SloClass.REALTIME, SloClass.BATCH
TEXT, IMAGE, IMAGES = WorkloadClass.TEXT_ONLY, WorkloadClass.IMAGE_SHORT, WorkloadClass.MULTI_IMAGE_LONG
NEVER = 1e9


class Desk:
    """An admission, asked in few words: standard text of 100 tokens without a deadline."""

    def __init__(self, max_in_flight, max_waiting, **fields):
        self.admission = Admission(rules(max_in_flight, max_waiting, **fields))

    def arrive(self, key, now=0.0, slo=STANDARD, deadline=NEVER):
        self.admission.arrive(key, slo, now, deadline)

    def prepared(self, key, now, workload=TEXT, tokens=100):
        return self.admission.prepared(key, workload, tokens, now).entered

    def leave(self, key, now):
        return self.admission.leave(key, now).entered

    def enter(self, key, now, **asked):
        self.arrive(key, now, **asked)
        return self.prepared(key, now)


def test_the_oldest_prepared_request_enters_first():
    """Order is that of `prepared`, not of `arrive`."""
    admission = Desk(max_in_flight=1, max_waiting=4)
    for key in ("a", "b", "c"):
        admission.arrive(key)

    assert admission.prepared("c", 0.0) == ["c"]
    assert admission.prepared("a", 0.0) == []
    assert admission.prepared("b", 0.0) == []
    assert admission.leave("c", 1.0) == ["a"]
    assert admission.leave("a", 2.0) == ["b"]


def test_a_full_room_answers_queue_full_with_a_time_to_come_back():
    """Seats bound the bodies and pixels that are held, so they are taken before anything is read."""
    admission = Desk(max_in_flight=1, max_waiting=2)
    admission.arrive("a")
    admission.arrive("b")

    with pytest.raises(Busy) as refused:
        admission.arrive("c")

    assert refused.value.code.code == "queue_full"
    assert refused.value.retry_after_s is not None and 1 <= refused.value.retry_after_s <= 30
    assert admission.admission.place("c") is None


def test_leaving_twice_or_without_arriving_changes_nothing():
    """Every way out may call leave; only the first counts."""
    admission = Desk(max_in_flight=1, max_waiting=2)
    admission.arrive("a")
    admission.prepared("a", 0.0)

    assert admission.leave("a", 1.0) == []
    assert admission.leave("a", 2.0) == []
    assert admission.leave("ghost", 2.0) == []
    assert admission.admission.idle


@pytest.mark.parametrize("event", ["arrive", "prepared"])
def test_an_event_out_of_order_raises_and_changes_nothing(event):
    """A state machine refuses what its diagram does not draw."""
    admission = Desk(max_in_flight=1, max_waiting=4)
    admission.arrive("a")
    admission.prepared("a", 0.0)
    before = repr(admission.admission)

    with pytest.raises(AdmissionError):
        admission.arrive("a") if event == "arrive" else admission.prepared("a", 0.0)

    assert repr(admission.admission) == before


@pytest.mark.parametrize("kind", ["SLO class", "workload class"])
def test_one_flood_fills_its_share_and_the_others_still_find_seats(kind):
    """Ten of batch, or ten of images, come; what is left stays free for the rest."""
    treatments = {slo: Treatment(room_share=0.5) for slo in SloClass}
    desk = Desk(1, 10, treatments=treatments, workload_share=0.3)
    refused = 0
    for number in range(10):
        try:
            slo = [BATCH] if kind == "SLO class" else [STANDARD, BATCH]
            desk.arrive(f"flood {number}", slo=slo[number % len(slo)])
            desk.admission.sort(
                f"flood {number}", WorkloadClass.UNCLASSIFIED if kind == "SLO class" else IMAGES, 0.0
            )
        except Busy as error:
            refused += error.code.code == "queue_full"
            desk.leave(f"flood {number}", 0.0)

    assert refused == (
        5 if kind == "SLO class" else 6
    )  # of five seats two for one workload class, in each SLO class
    desk.arrive("other", slo=REALTIME)
    desk.admission.sort("other", TEXT, 0.0)
    desk.admission.check()


def test_a_flood_of_batch_texts_leaves_seats_for_every_other_text():
    """As serve.toml has it by default: 256 seats."""
    admission = Admission(rules_of(ServeConfig()))
    refused = 0
    for number in range(300):
        try:
            admission.arrive(str(number), BATCH, 0.0, 300.0)
            admission.sort(str(number), TEXT, 0.0)
        except Busy:
            admission.leave(str(number), 0.0)
            refused += 1
    assert refused == 300 - 64
    for slo in (REALTIME, STANDARD):
        admission.arrive(slo, slo, 0.0, 3.0)
        admission.sort(slo, TEXT, 0.0)
    admission.check()


def test_a_request_that_turns_out_to_be_of_a_full_class_is_refused_when_it_is_prepared():
    """A photo may be high_res only once its header was read."""
    desk = Desk(1, 10, workload_share=0.1)
    desk.arrive("a")
    desk.admission.sort("a", IMAGES, 0.0)
    desk.arrive("b")
    desk.admission.sort("b", IMAGE, 0.0)

    with pytest.raises(Busy) as refused:
        desk.prepared("b", 0.0, workload=IMAGES)

    assert refused.value.code.code == "queue_full"
    desk.leave("b", 0.0)
    desk.admission.check()


def busy_desk(hold_s=1.0, first_s=0.2):
    """One slot, held since 100.0 by requests that take a second, as it has learned."""
    desk = Desk(1, 100)
    desk.enter("before", 100.0 - hold_s)
    desk.admission.answered("before", 100.0 - hold_s + first_s, 100.0)
    desk.leave("before", 100.0)
    desk.enter("holder", 100.0)
    return desk


def test_a_request_that_would_be_late_is_refused_when_it_queues():
    """At once, as 429 with the hop and when it would do, not as a 504 after its budget."""
    desk = busy_desk()
    for number in range(4):
        desk.enter(f"ahead {number}", 100.0)
    desk.arrive("late", 96.0, deadline=106.5)

    with pytest.raises(Busy) as refused:
        desk.admission.prepared("late", TEXT, 100, 101.4)  # 5.2 s of work, and 0.8 x 5.1 s to plan with

    assert (refused.value.code.code, refused.value.hop) == ("queue_too_long", "wait")
    assert refused.value.status == 429
    assert refused.value.retry_after_s == 2.0
    desk.leave("late", 101.4)


def test_a_request_that_even_short_would_be_late_is_refused_before_its_body_is_read():
    """Nothing is decoded for it."""
    desk = busy_desk()
    for number in range(8):
        desk.enter(f"ahead {number}", 100.0)

    with pytest.raises(Busy) as refused:
        desk.arrive("late", 100.0, deadline=103.0)

    assert refused.value.code.code == "queue_too_long"
    assert refused.value.retry_after_s == 7.0  # 9 slots of a second and 0.2 s, against 3
    assert desk.admission.place("late") is None


def test_retry_after_is_of_the_work_before_this_request_not_of_the_whole_queue():
    """Behind the same queue of long requests a short one may come back much sooner than a long one."""
    desk = busy_desk(hold_s=2.0)
    asked = {"short": (TEXT, 100), "long": (IMAGES, 4000)}
    for name in asked:
        desk.arrive(name, 100.0, deadline=103.0)
    for number in range(20):
        desk.arrive(f"ahead {number}", 100.0)
        desk.prepared(f"ahead {number}", 100.0, IMAGES, 4000)
    told = {}
    for name, (workload, tokens) in asked.items():
        with pytest.raises(Busy) as refused:
            desk.prepared(name, 101.5, workload, tokens)
        told[name] = refused.value.retry_after_s
        desk.leave(name, 101.5)

    assert told["short"] <= 6.0
    assert told["long"] == 30.0


def test_who_cannot_make_it_any_more_leaves_its_slot_to_others():
    """Its turn comes 0.1 s before its deadline; the quickest first token takes 0.2 s."""
    desk = Desk(1, 100)
    desk.enter("holder", 99.0)
    desk.enter("doomed", 99.0, deadline=100.1)
    desk.enter("other", 99.0)
    desk.admission.answered("holder", 99.2, 99.2)

    moves = desk.admission.leave("holder", 100.0)

    assert moves.entered == ["other"]
    assert [(key, error.code.code) for key, error in moves.refused] == [("doomed", "queue_too_long")]
    assert desk.leave("doomed", 100.0) == []


def test_nothing_is_refused_early_before_anything_was_learned():
    """A guess refuses nobody."""
    desk = Desk(1, 100)
    for number in range(50):
        desk.enter(str(number), 0.0, deadline=0.5)

    assert desk.admission.queued == 49


def test_what_was_learned_in_a_bad_minute_does_not_refuse_for_ever():
    """While somebody holds a slot, it refuses, and fades; whoever comes to empty engines is let in and corrects it."""
    desk = busy_desk(hold_s=20.0, first_s=15.0)
    with pytest.raises(Busy):
        desk.arrive("beside another", 120.0, deadline=123.0)
    desk.leave("holder", 120.0)

    assert desk.enter("at once", 120.0, deadline=123.0) == ["at once"]
    desk.leave("at once", 121.0)
    assert desk.enter("later", 250.0, deadline=253.0) == ["later"]


def test_the_limit_starts_low_and_grows_by_one_with_every_first_token_in_time_up_to_its_most():
    """Slow start, while it is in use."""
    fates = run(rules(36, adaptive=True), [Ask(0.0, hold_s=1.0, first_s=0.1) for _ in range(300)])

    inside = [sum(fate.entered <= at < fate.ended for fate in fates) for at in (0.05, 0.15, 0.25, 0.35, 0.45)]
    assert inside == [8, 16, 24, 32, 36]


def test_late_first_tokens_and_refusals_of_an_engine_shrink_the_limit_once_per_round_trip():
    """Those that entered before the last decrease say nothing about the new limit."""
    desk = Desk(64, 100, adaptive=True, min_in_flight=2)
    for number in range(8):
        desk.enter(str(number), 0.0)
    desk.admission.answered("0", 0.1, 0.1)
    assert desk.admission.limit == 9

    for number in range(1, 5):
        desk.admission.overloaded(str(number), 1.0)
    desk.admission.answered("5", 5.0, 5.0)
    assert desk.admission.limit == 6

    for number in range(20):
        desk.enter(f"later {number}", 2.0)
        desk.admission.overloaded(f"later {number}", 2.0 + number)
        desk.leave(f"later {number}", 2.0 + number)
        for key in [str(n) for n in range(8)]:
            desk.leave(key, 2.0)
    assert desk.admission.limit >= 2


def test_an_engine_that_is_slow_even_alone_is_not_cut_down():
    """Late is only what also took twice the quickest: fewer requests would not help."""
    desk = Desk(64, 100, adaptive=True, min_in_flight=2)
    for number in range(20):
        desk.enter(str(number), 10.0 * number)
        desk.admission.answered(str(number), 10.0 * number + 4.0, 10.0 * number + 4.0)
        desk.leave(str(number), 10.0 * number + 5.0)

    assert desk.admission.limit >= 8


def surge(adaptive):
    """A pair whose prefill computes four long prompts a second gets 2 a second, for 20 s 8, then 2."""
    asks = []
    for begin, end, rate in ((0, 20, 2.0), (20, 40, 8.0), (40, 100, 2.0)):
        asks += [
            Ask(begin + number / rate, 2500, hold_s=0.5, budget_s=3.0, workload_class=IMAGES)
            for number in range(int((end - begin) * rate))
        ]
    return run(rules(64, 256, min_in_flight=2, adaptive=adaptive), asks, Prefill(1e-4))


def test_goodput_survives_twice_what_the_engines_can_do():
    """The excess is told 429 at once; who gets in is in time. A fixed limit of 64 lets all of them be late."""
    fixed, adaptive = surge(False), surge(True)

    def good(fates, begin, end):
        return sum(fate.good for fate in fates if begin <= fate.ask.at < end) / (end - begin)

    refused = [fate for fate in adaptive if fate.refused]
    assert good(adaptive, 20, 40) >= 0.9 * 4.0
    assert good(adaptive, 45, 100) == pytest.approx(2.0, rel=0.02)
    assert good(fixed, 20, 40) < 0.5 * good(adaptive, 20, 40)
    assert len(refused) >= 0.9 * sum(not fate.good for fate in adaptive)


class Books(RuleBasedStateMachine):
    """Any order of events keeps the books balanced, and whoever enters was told so exactly once."""

    def __init__(self):
        super().__init__()
        self.desk = Desk(max_in_flight=2, max_waiting=3)
        self.admission = self.desk.admission
        self.now = 0.0
        self.known: set[str] = set()
        self.entered: set[str] = set()
        self.next = 0

    def enter(self, keys):
        assert not self.entered & set(keys)
        self.entered |= set(keys)

    @rule()
    def arrive(self):
        key = f"r{self.next}"
        self.next += 1
        full = self.admission.seated + self.admission.queued >= 3
        try:
            self.desk.arrive(key, self.now)
        except Busy:
            assert full
        else:
            assert not full
            self.known.add(key)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), later=st.floats(0, 2), tokens=st.sampled_from([10, 5000]))
    def prepared(self, data, later, tokens):
        self.now += later
        key = data.draw(st.sampled_from(sorted(self.known)))
        if self.admission.place(key) is Place.SEATED:
            self.enter(self.desk.prepared(key, self.now, tokens=tokens))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), later=st.floats(0, 2))
    def leave(self, data, later):
        self.now += later
        key = data.draw(st.sampled_from(sorted(self.known)))
        self.enter(self.desk.leave(key, self.now))
        self.known.discard(key)
        self.entered.discard(key)

    @invariant()
    def balanced(self):
        self.admission.check()
        assert {key for key in self.known if self.admission.place(key) is Place.RUNNING} == self.entered


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
