"""Those who are sent away are told to come one after the other, and what is booked passes."""

import asyncio

import pytest

from serving.schedule.admit import Admission
from serving.schedule.bookings import MAX_RETRY_AFTER_S, Bookings, in_words, retry_after_s
from serving.schedule.lease import Need
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import chat, rig, until
from tests.serving.schedule.virtual import Ask, rules, run
from tests.serving.stand_ins import FROZEN, stand_ins
from toolkit.core.errors import Busy
from toolkit.core.sample import SloClass, WorkloadClass

TEXT = WorkloadClass.TEXT_ONLY


def test_each_comes_two_service_times_after_the_one_before():
    """And no sooner than there is room for it, as if nobody had been sent away."""
    bookings = Bookings()
    assert [bookings.book(3.0, 1.0, 10.0).in_s for _ in range(3)] == [3.0, 5.0, 7.0]
    assert bookings.book(1.0, 1.0, 12.0).in_s == 5.0  # 6 s were booked, of which 2 have passed


def test_one_that_has_long_to_wait_itself_does_not_put_the_others_off():
    """A long request is sent away for its own sake; a short one behind it would be served much sooner."""
    bookings = Bookings()
    assert bookings.book(25.0, 0.5, 0.0).in_s == 25.0
    assert bookings.book(1.0, 0.5, 0.0).in_s == 2.0


def test_what_has_passed_is_forgotten():
    bookings = Bookings()
    for _ in range(5):
        bookings.book(1.0, 1.0, 0.0)
    assert bookings.book(2.0, 1.0, 10.0).in_s == 2.0


def test_nobody_is_told_more_than_the_most_and_those_who_are_told_that_hear_that_it_is_no_promise():
    """A flood does not put off those who come long after it, either."""
    bookings = Bookings()
    booked = [bookings.book(1.0, 1.0, 0.0).in_s for _ in range(1000)]
    told = [retry_after_s(in_s) for in_s in booked]
    assert told == sorted(told)
    assert told[-1] == MAX_RETRY_AFTER_S
    assert not in_words(booked[0])
    assert "not before 30 s" in in_words(booked[-1])
    assert bookings.book(1.0, 1.0, MAX_RETRY_AFTER_S).in_s == 1.0


def test_who_is_answered_elsewhere_puts_nobody_off():
    """A booking taken back is as none; also one that the most cut short."""
    bookings = Bookings()
    for _ in range(3):
        bookings.take_back(bookings.book(1.0, 1.0, 0.0))
    assert bookings.book(1.0, 1.0, 0.0).in_s == 1.0
    for _ in range(14):
        bookings.book(1.0, 1.0, 0.0)
    bookings.take_back(bookings.book(1.0, 5.0, 0.0))
    assert bookings.book(1.0, 1.0, 1.0).in_s == MAX_RETRY_AFTER_S


def refused(admission, key, now=0.0):
    with pytest.raises(Busy) as caught:
        admission.arrive(key, SloClass.STANDARD, now, now + 3.0)
    return caught.value.retry_after_s


def test_those_who_find_no_seat_come_one_after_the_other_too():
    """One slot of a second, two seats."""
    admission = Admission(rules(1, 2))
    admission.arrive("a", SloClass.STANDARD, 0.0, 1e9)
    admission.arrive("b", SloClass.STANDARD, 0.0, 1e9)
    assert [refused(admission, str(number)) for number in range(3)] == [1.0, 3.0, 5.0]


def test_asking_how_long_it_would_take_books_nothing():
    """Only who is sent away comes again."""
    admission = Admission(rules(1, 2))
    for key, leaves in (("before", 1.0), ("holder", None), ("queued", None)):
        admission.arrive(key, SloClass.STANDARD, 0.0, 1e9)
        admission.prepared(key, TEXT, 100, 0.0)
        if leaves is not None:
            admission.leave(key, leaves)
    admission.arrive("asking", SloClass.STANDARD, 1.0, 1e9)
    asked = {admission.outlook_s("asking", TEXT, 100, 1.0, Need(100)) for _ in range(50)}
    assert min(asked) >= 1.0
    assert [refused(admission, key, 1.0) for key in "ab"] == [1.0, 3.0]


def test_of_those_who_are_told_together_who_came_first_comes_again_first():
    """The last of a queue are judged first, and told no sooner for that."""
    asks = [Ask(0.01 * number, hold_s=0.5, first_s=0.1, budget_s=3.0) for number in range(30)]
    fates = run(rules(max_in_flight=2), asks)
    together = [fate for fate in fates if fate.refused is not None and fate.refused_at == 0.5]
    told = [fate.refused.retry_after_s for fate in together]
    assert len(told) >= 10
    assert told == sorted(told)
    assert len(set(told)) >= len(told) // 3


def test_requests_that_the_fallback_endpoint_answers_leave_no_booking(tmp_path):
    """The next that is sent away for good is told what the first would have been."""

    async def scenario():
        async with (
            stand_ins(unified_0={}) as elsewhere,
            rig(
                tmp_path,
                {
                    "fallback": {"url": f"{elsewhere['unified-0'].stand_in.url}/v1"},
                    "schedule": {"max_in_flight": 1, "max_waiting": 1},
                },
                decode_0=FROZEN,
            ) as made,
        ):
            held = [FakeExchange(chat()) for _ in range(2)]
            tasks = [asyncio.create_task(made.gateway.api.handle(held[0]))]
            await until(lambda: made.legs["decode-0"].calls)
            tasks.append(asyncio.create_task(made.gateway.api.handle(held[1])))
            await until(lambda: made.gateway.admission.queued == 1)
            spared = [await made.ask() for _ in range(3)]
            sent_away = [await made.ask(headers={"x-toolkit-degrade": "never"}) for _ in range(2)]
            for one in held:
                one.hang_up()
            await asyncio.gather(*tasks)
            return [one.status for one in spared], [int(one.headers["retry-after"]) for one in sent_away]

    statuses, told = asyncio.run(scenario())

    assert statuses == [200] * 3
    assert told[0] == 1
    assert told[1] > told[0]
