"""Seats and slots: bounded, first in first out, balanced."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.schedule.admit import Admission, AdmissionError, Place
from toolkit.core.errors import Busy


def test_the_oldest_prepared_request_enters_first():
    """Order is that of `prepared`, not of `arrive`."""
    admission = Admission(max_in_flight=1, max_waiting=4)
    for key in ("a", "b", "c"):
        admission.arrive(key)

    assert admission.prepared("c", 0.0) == ["c"]
    assert admission.prepared("a", 0.0) == []
    assert admission.prepared("b", 0.0) == []
    assert admission.leave("c", 1.0) == ["a"]
    assert admission.leave("a", 2.0) == ["b"]


def test_a_full_room_answers_queue_full_with_a_time_to_come_back():
    """Seats bound the bodies and pixels that are held, so they are taken before anything is read."""
    admission = Admission(max_in_flight=1, max_waiting=2)
    admission.arrive("a")
    admission.arrive("b")

    with pytest.raises(Busy) as refused:
        admission.arrive("c")

    assert refused.value.code.code == "queue_full"
    assert refused.value.retry_after_s is not None and 1 <= refused.value.retry_after_s <= 30
    assert admission.place("c") is None


def test_leaving_twice_or_without_arriving_changes_nothing():
    """Every way out may call leave; only the first counts."""
    admission = Admission(max_in_flight=1, max_waiting=2)
    admission.arrive("a")
    admission.prepared("a", 0.0)

    assert admission.leave("a", 1.0) == []
    assert admission.leave("a", 2.0) == []
    assert admission.leave("ghost", 2.0) == []
    assert admission.idle


@pytest.mark.parametrize("event", ["arrive", "prepared"])
def test_an_event_out_of_order_raises_and_changes_nothing(event):
    """A state machine refuses what its diagram does not draw."""
    admission = Admission(max_in_flight=1, max_waiting=4)
    admission.arrive("a")
    admission.prepared("a", 0.0)
    before = repr(admission)

    with pytest.raises(AdmissionError):
        admission.arrive("a") if event == "arrive" else admission.prepared("a", 0.0)

    assert repr(admission) == before


class Books(RuleBasedStateMachine):
    """Any order of events keeps the books balanced, and whoever enters was told so exactly once."""

    def __init__(self):
        super().__init__()
        self.admission = Admission(max_in_flight=2, max_waiting=3)
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
            self.admission.arrive(key)
        except Busy:
            assert full
        else:
            assert not full
            self.known.add(key)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), now=st.floats(0, 100))
    def prepared(self, data, now):
        key = data.draw(st.sampled_from(sorted(self.known)))
        if self.admission.place(key) is Place.SEATED:
            self.enter(self.admission.prepared(key, now))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), now=st.floats(0, 100))
    def leave(self, data, now):
        key = data.draw(st.sampled_from(sorted(self.known)))
        self.enter(self.admission.leave(key, now))
        self.known.discard(key)
        self.entered.discard(key)

    @invariant()
    def balanced(self):
        self.admission.check()
        assert {key for key in self.known if self.admission.place(key) is Place.RUNNING} == self.entered


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
