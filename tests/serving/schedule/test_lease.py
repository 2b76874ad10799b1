"""KV leases: the most that a request may use, on one decode, never more than there is."""

import pytest

from serving.schedule.lease import ANYWHERE, Leases, Need
from serving.schedule.pool import Report
from tests.serving.schedule.virtual import pool
from toolkit.core.errors import TooLarge


def leases(cap=0.15, **reports):
    made = Leases(cap)
    for name, report in reports.items():
        made.report(name, report)
    made.serve(dict.fromkeys(reports, 1.0))
    return made


def test_a_lease_is_the_most_that_may_be_used_in_whole_pages_for_every_choice():
    """100 tokens are 7 pages of 16; three choices hold them three times."""
    made = leases(a=pool(16_000, 16))
    made.take("one", Need(100, choices=3), "a")

    assert made.pools["a"].leased == 3 * 7
    assert made.pools["a"].free == 1000 - 21
    made.release("one")
    made.release("one")
    assert made.pools["a"].free == 1000
    made.check()


def test_over_the_cap_is_told_with_the_arithmetic():
    """15 % of 10,000 tokens in pages of 16 are 93 pages."""
    made = leases(a=pool(10_000, 16))
    made.refuse_too_large(Need(1488, prompt=1000))

    with pytest.raises(TooLarge) as refused:
        made.refuse_too_large(Need(600, choices=3, prompt=500))

    assert (refused.value.status, refused.value.code.code) == (413, "kv_lease_exceeded")
    message = refused.value.message
    assert (
        "500 prompt tokens + 100 max_tokens = 600 tokens, 608 in pages of 16; times 3 choices: 1824"
        in message
    )
    assert "1488, 15 % of the engine's KV pool of 10000 tokens" in message
    assert made.most_each(3) == 93 // 3 * 16


def test_the_cap_is_of_one_data_parallel_rank():
    """A request lives in one of them."""
    made = leases(cap=0.5, a=Report(1000, 1, 4, 0, 1))

    assert made.most_each(1) == 500
    assert made.choose(Need(400)) == "a"
    assert made.pools["a"].free == 4000


def test_without_known_pools_there_are_no_leases():
    """An engine that does not tell serves as before, and so do those beside it."""
    made = leases(a=pool(100))
    made.silent("other")
    made.serve({"a": 1.0, "other": 1.0})

    assert not made.binding
    assert made.choose(Need(10**9)) == ANYWHERE
    assert made.most_each(1) is None
    made.refuse_too_large(Need(10**9))
    made.take("one", Need(10**9), ANYWHERE)
    assert made.place("one") is None
    made.release("one")
    made.check()


def test_who_entered_before_a_decode_was_asked_is_counted_where_it_went():
    """However much that is: nobody else enters until it has left."""
    made = Leases(0.15)
    made.serve({"a": 1.0})
    assert not made.settled
    for key in "xyz":
        made.take(key, Need(900), ANYWHERE)
    made.settle("x", 0, "a")
    made.report("a", pool(1000))
    assert made.settled and made.binding
    made.settle("y", 0, "a")  # paired only now

    assert made.pools["a"].leased == 1800
    assert (made.place("x"), made.place("y"), made.place("z")) == ("a", "a", None)
    assert not made.fits(Need(1))
    made.check()
    for key in "xyz":
        made.release(key)
    assert made.fits(Need(150))
    made.check()


def test_a_decode_that_does_not_tell_is_known_to():
    made = Leases(0.15)
    made.silent("a")

    assert made.settled and not made.binding


def test_it_enters_the_decode_with_the_most_free():
    """Of those where it fits."""
    made = leases(cap=0.5, a=pool(1000), b=pool(1000))
    made.take("one", Need(300), "a")

    assert made.choose(Need(400)) == "b"
    made.take("two", Need(400), "b")
    assert made.choose(Need(400)) == "a"
    assert made.choose(Need(500), without="a") == "b"
    assert not made.fits(Need(501))
    made.take("three", Need(500), "a")
    assert made.fits(Need(500))
    assert not made.room(without="b")(Need(500))


def test_a_decode_of_twice_the_weight_holds_twice_as_much():
    """Operators weigh instances; the pools are alike."""
    made = leases(cap=0.5, a=pool(1000), b=pool(1000))
    made.serve({"a": 2.0, "b": 1.0})
    for number in range(6):
        made.take(str(number), Need(100), made.choose(Need(100)))

    assert (made.pools["a"].leased, made.pools["b"].leased) == (400, 200)


def test_what_others_use_is_what_the_engine_reports_beyond_all_that_we_can_have_had():
    """A late report that still shows a request of ours that has ended is no stranger's."""
    made = leases(a=pool(1000, used=0, stamp=1))
    made.take("ours", Need(300), "a")
    made.release("ours")
    made.report("a", pool(1000, used=250, stamp=2))
    assert made.pools["a"].foreign == 0

    made.report("a", pool(1000, used=250, stamp=2))  # the same snapshot, read again
    assert made.pools["a"].foreign == 0
    made.report("a", pool(1000, used=250, stamp=3))  # still there: not given back, or another's
    assert made.pools["a"].foreign == 250
    assert made.pools["a"].free == 750
    made.report("a", pool(1000, used=0, stamp=4))
    assert made.pools["a"].free == 1000


def test_a_retry_takes_its_lease_along_where_it_fits():
    """One choice of two; never into pages that are kept for who waits for them."""
    made = leases(cap=0.5, a=pool(1000), b=pool(1000), c=pool(1000))
    made.take("other", Need(900), "c")
    made.take("one", Need(200, choices=2), "a")

    assert made.open_to("one", 1, ("a", "b", "c")) == {"a", "b"}
    assert not made.move("one", 1, "c")
    assert made.move("one", 1, "b")
    assert [made.place("one", choice) for choice in (0, 1)] == ["a", "b"]
    assert (made.pools["a"].leased, made.pools["b"].leased) == (200, 200)
    made.reserved = "b"
    assert made.open_to("one", 0, ("a", "b", "c")) == {"a"}
    assert not made.move("one", 0, "b")
    made.release("one")
    made.release("other")
    made.check()


def test_a_decode_that_is_yet_to_tell_gets_nothing_meanwhile():
    """It has come up a moment ago: no reason to let everybody in without a lease."""
    made = leases(a=pool(1000))
    made.serve({"a": 1.0, "new": 1.0})

    assert made.binding
    assert not made.fits(Need(200))
    made.report("new", pool(2000))
    assert made.choose(Need(200)) == "new"


def test_an_engine_that_starts_anew_has_a_new_pool_and_what_runs_is_counted_in_it():
    """Silent, its leases hold nothing; telling other pages, they hold those."""
    made = leases(cap=0.5, a=pool(1000))
    made.take("one", Need(100), "a")
    made.silent("a")
    assert not made.binding
    made.check()

    made.report("a", pool(1600, 16, stamp=9))
    assert (made.pools["a"].pages, made.pools["a"].leased) == (100, 7)
    made.release("one")
    made.check()
