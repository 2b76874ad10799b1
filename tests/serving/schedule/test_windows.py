"""The window of each decode between entering and first token."""

import heapq
from collections import Counter

from serving.schedule.admit import Admission
from serving.schedule.windows import Windows
from tests.serving.schedule.virtual import pool, rules
from toolkit.core.sample import SloClass, WorkloadClass

EVERY_S = 1 / 15
KNOWN_FROM_S = 20.0
"""By then the first of the slow ones have come."""


def windows(least=1, most=64, adaptive=True):
    return Windows(least, most, adaptive)


def fill(made, decode, count, at=0):
    keys = [f"{decode}/{at + number}" for number in range(count)]
    for key in keys:
        made.enter(key, decode)
    return keys


def test_a_decode_whose_first_tokens_are_late_gets_fewer_at_once_and_the_other_as_many_as_before():
    made = windows()
    slow, quick = fill(made, "slow", 8), fill(made, "quick", 8)
    assert made.closed() == {"slow", "quick"}, "both begin with as many"
    for number, key in enumerate(slow):
        made.too_much(key, 0.0, 1.0 + number)
    for key in quick:
        made.in_time(key, 0.9)
    assert made.widths["slow"] == 5, "one round trip, one decrease"
    assert made.widths["quick"] >= 8
    assert not made.closed()
    made.check()


def test_a_window_is_left_with_the_first_token_however_long_the_answer_goes_on():
    made = windows()
    (first, *_) = fill(made, "a", 8)
    made.in_time(first, 0.1)
    assert made.inside("a") == 7
    made.leave(first)
    made.leave(first)
    assert made.inside("a") == 7
    made.check()


def test_a_retry_takes_its_place_along():
    made = windows()
    made.enter("r", "a")
    made.enter("r", "b")
    assert (made.inside("a"), made.inside("b")) == (0, 1)
    made.enter("s", "")
    assert made.keys == {"r"}, "where nobody has chosen a decode nothing is counted"
    made.check()


def test_a_queue_that_grows_cuts_the_window_and_one_that_stands_does_not():
    made = windows()
    fill(made, "a", 1)
    for length in (6, 6, 5):
        made.queue("a", length, 1.0)
    assert made.widths["a"] == 8
    made.queue("a", 7, 2.0)
    assert made.widths["a"] == 5
    made.queue("b", 100, 2.0)
    assert "b" not in made.widths, "nothing of ours has gone there"


def test_a_short_queue_is_nothing():
    made = windows()
    fill(made, "a", 1)
    for length in (0, 1, 2, 3, 4):
        made.queue("a", length, float(length))
    assert made.widths["a"] == 8


def test_not_adaptive_it_is_as_wide_as_the_limit_of_all_and_never_the_narrower():
    made = windows(most=4, adaptive=False)
    keys = fill(made, "a", 3)
    made.too_much(keys[0], 0.0, 1.0)
    assert made.widths["a"] == 4
    made.retune(1, 2, False)
    assert made.closed() == {"a"}


def played(first_s, asked, told):
    """Requests at 15/s, each held for 0.5 s after its first token. How many of the late half each decode gave it within 1 s,
    and the most that ever stood before the slow one."""
    admission = Admission(told)
    for name in first_s:
        admission.told(name, pool(10**6), 0.0)
    admission.serve(dict.fromkeys(first_s, 1.0), 0.0)
    arrived = {str(number): EVERY_S * number for number in range(asked)}
    events = [(at, "arrive", key) for key, at in arrived.items()]
    in_time, most = Counter(), 0
    while events:
        now, what, key = heapq.heappop(events)
        if what == "arrive":
            admission.arrive(key, SloClass.STANDARD, now, now + 600.0)
            moves = admission.prepared(key, WorkloadClass.TEXT_ONLY, 100, now)
        elif what == "first":
            decode = admission.leases.place(key)
            in_time[decode] += arrived[key] >= KNOWN_FROM_S and now - arrived[key] <= 1.0
            moves = admission.answered(key, now, now)
            heapq.heappush(events, (now + 0.5, "end", key))
        else:
            moves = admission.leave(key, now)
        assert not moves.refused
        for entered in moves.entered:
            heapq.heappush(events, (now + first_s[admission.leases.place(entered)], "first", entered))
        most = max(most, admission.windows.inside("slow"))
        admission.check()
    assert admission.idle
    return in_time, most


def test_one_slow_decode_of_two_does_not_hold_all_slots():
    """Its first tokens take 10 s, and leases alone would give it as much as the other holds: half of the slots, of which
    the quick one then has too few."""
    first_s = {"slow": 10.0, "quick": 0.1}
    in_time, most = played(first_s, 500, rules(max_in_flight=16, adaptive=True))
    unbounded, most_unbounded = played(first_s, 500, rules(max_in_flight=16))
    assert most <= most_unbounded == 8
    after = 500 - round(KNOWN_FROM_S / EVERY_S)
    assert in_time["quick"] >= 0.9 * after
    assert unbounded["quick"] <= 0.3 * after


def test_only_a_decode_of_the_widest_window_speaks_for_all():
    made = windows()
    first, second, *_ = fill(made, "a", 8)
    fill(made, "b", 1)
    assert not made.is_narrow(first)
    made.too_much(first, 0.0, 1.0)
    assert made.is_narrow(second)
    assert not made.is_narrow("b/0")
    assert not made.is_narrow("gone")
