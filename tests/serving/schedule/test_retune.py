"""Rules change under load: whoever has a place keeps it, and what comes after meets the new ones."""

import pytest

from serving.schedule.admit import Admission, Place
from serving.schedule.limit import InFlightLimit
from serving.schedule.priority import Treatment
from tests.serving.schedule.virtual import rules
from toolkit.core.errors import Busy
from toolkit.core.sample import SloClass, WorkloadClass

STANDARD, REALTIME, BATCH = SloClass.STANDARD, SloClass.REALTIME, SloClass.BATCH
TEXT, IMAGE, HIGH_RES = WorkloadClass.TEXT_ONLY, WorkloadClass.IMAGE_SHORT, WorkloadClass.HIGH_RES
NEVER = 1e9


def queue(admission, *keys, slo=STANDARD, workload=TEXT, tokens=100, now=0.0):
    entered = []
    for key in keys:
        admission.arrive(key, slo, now, NEVER)
        entered += admission.prepared(key, workload, tokens, now).entered
    return entered


def test_more_slots_let_in_those_who_wait():
    """A higher limit is used at once, in the order of the queue."""
    admission = Admission(rules(1, 8))
    queue(admission, "a", "b", "c")

    assert admission.retune(rules(2, 8), 1.0).entered == ["b"]
    admission.check()


def test_fewer_slots_end_nobody_and_admit_nobody_until_there_is_room():
    """The new limit is reached by waiting, not by cutting."""
    admission = Admission(rules(3, 8))
    queue(admission, "a", "b", "c", "d")

    assert admission.retune(rules(1, 8), 1.0).entered == []
    admission.check()
    assert [admission.leave(key, 2.0).entered for key in ("a", "b")] == [[], []]
    assert admission.leave("c", 3.0).entered == ["d"]
    admission.check()


def test_a_smaller_room_keeps_its_guests_and_refuses_new_ones():
    """A seat once given is given back only by leaving."""
    admission = Admission(rules(1, 8))
    queue(admission, "a", "b", "c", "d")
    admission.retune(rules(1, 2), 1.0)

    with pytest.raises(Busy) as refused:
        admission.arrive("e", STANDARD, 1.0, NEVER)

    assert refused.value.code.code == "queue_full"
    assert admission.place("d") is Place.QUEUED
    admission.check()


def test_new_weights_and_lengths_hold_for_those_who_wait_too():
    """Otherwise a change would show only when the queue that called for it is gone."""
    admission = Admission(rules(1, 8))
    queue(admission, "first", "standard", now=0.0)
    queue(admission, "batch", slo=BATCH, now=0.1)
    heavy = rules(1, 8, treatments={slo: Treatment(weight=9.0 if slo is BATCH else 1.0) for slo in SloClass})

    admission.retune(heavy, 0.2)

    assert admission.leave("first", 0.3).entered == ["batch"]
    admission.check()


@pytest.mark.parametrize("shed", [BATCH, HIGH_RES])
def test_a_shed_class_is_told_when_to_come_back_and_others_are_served(shed):
    """429 `shed` with Retry-After, by SLO class on arrival and by workload class once it is known."""
    admission = Admission(rules(4, 8))
    queue(admission, "before", slo=BATCH, workload=HIGH_RES)
    admission.retune(rules(4, 8, shed=frozenset({shed}), shed_retry_s=7.0), 1.0)

    with pytest.raises(Busy) as refused:
        queue(admission, "after", slo=BATCH, workload=HIGH_RES, now=1.0)
    admission.leave("after", 1.0)

    assert (refused.value.code.code, refused.value.retry_after_s) == ("shed", 7.0)
    assert queue(admission, "other", slo=REALTIME, workload=IMAGE, now=1.0) == ["other"]
    assert admission.place("before") is Place.RUNNING
    admission.check()


def test_a_bound_that_is_taken_back_gives_back_what_was_learned():
    """An operator's bound is no late first token: the limit need not be learned again."""
    limit = InFlightLimit(2, 64, adaptive=True)
    for _ in range(12):
        limit.in_time(0.1, limit.value)
    learned = limit.value
    limit.retune(2, 3, adaptive=True)
    assert limit.value == 3
    limit.in_time(0.1, 3)
    limit.retune(2, 64, adaptive=True)
    assert limit.value == learned > 8

    limit.retune(2, 10, adaptive=True)
    limit.too_much(1.0, 2.0)
    limit.retune(2, 64, adaptive=True)
    assert limit.value == 7, "what is learned under a bound is learned"
