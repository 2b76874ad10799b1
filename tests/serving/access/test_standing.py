"""Which hosts are left alone: rows of failures open a breaker of their own, in a table that cannot grow."""

from serving.access.breaker import BreakerRule
from serving.access.standing import HostStanding, Leave

RULE = BreakerRule(failures=3, hold_s=2.0, most_hold_s=10.0)


def enter(standing: HostStanding, host: str, now: float) -> Leave:
    leave = standing.enter(host, now)
    assert isinstance(leave, Leave)
    return leave


def fail(standing: HostStanding, host: str, now: float, times: int = 1) -> list[bool]:
    return [standing.failed(enter(standing, host, now), now) for _ in range(times)]


def test_a_row_of_failures_is_one_opening() -> None:
    """The third one is told of; other hosts are as before."""
    standing = HostStanding(RULE)

    assert fail(standing, "bad", 0.0, 3) == [False, False, True]
    assert standing.retry_after_s("bad", 0.5) == 1.5
    assert standing.enter("bad", 0.5) == 1.5
    assert standing.retry_after_s("good", 0.5) == 0.0
    enter(standing, "good", 0.5)


def test_many_that_fail_together_open_it_once() -> None:
    """They were all asked before it was known."""
    standing = HostStanding(RULE)
    leaves = [enter(standing, "bad", 0.0) for _ in range(16)]

    assert [standing.failed(leave, 5.0) for leave in leaves].count(True) == 1
    assert standing.retry_after_s("bad", 5.0) == 2.0


def test_one_probe_decides() -> None:
    """After the hold one may ask; meanwhile others are told to wait a little. A failed probe doubles the hold."""
    standing = HostStanding(RULE)
    fail(standing, "bad", 0.0, 3)

    probe = enter(standing, "bad", 2.0)
    assert standing.enter("bad", 2.0) == 1.0
    assert standing.failed(probe, 3.0)
    assert standing.enter("bad", 3.0) == 4.0
    holds = []
    now = 3.0
    for _ in range(4):
        now += standing.retry_after_s("bad", now)
        fail(standing, "bad", now)
        holds.append(standing.retry_after_s("bad", now))
    assert holds == [8.0, 10.0, 10.0, 10.0]

    standing.answered(enter(standing, "bad", now + 10.0))
    assert fail(standing, "bad", now + 10.0, 2) == [False, False]


def test_a_probe_that_did_not_come_to_ask_decides_nothing() -> None:
    """Its caller gave up; the next one is the probe."""
    standing = HostStanding(RULE)
    fail(standing, "bad", 0.0, 3)

    standing.unasked(enter(standing, "bad", 2.0))
    standing.answered(enter(standing, "bad", 2.0))
    enter(standing, "bad", 2.0)


def test_an_answer_ends_the_row() -> None:
    """An image or a 404: the host works."""
    standing = HostStanding(RULE)
    for now in range(20):
        fail(standing, "shaky", float(now), 2)
        standing.answered(enter(standing, "shaky", float(now)))

    assert standing.retry_after_s("shaky", 20.0) == 0.0


def test_failures_far_apart_are_no_row() -> None:
    """One a day is no reason to leave a host alone."""
    standing = HostStanding(RULE, window_s=60.0)

    assert not any(fail(standing, "rare", 61.0 * day)[0] for day in range(10))


def test_invented_hosts_do_not_grow_the_table() -> None:
    """They push one another out; a host that is asked meanwhile stays, and leaves that are out still come back."""
    standing = HostStanding(RULE, most_hosts=10)
    fail(standing, "known", 0.0, 2)
    out = enter(standing, "early", 0.0)
    for number in range(1000):
        fail(standing, f"h{number}.example", 1.0)
        standing.unasked(enter(standing, "known", 1.0))
        assert len(standing) <= 10

    standing.failed(out, 2.0)
    assert fail(standing, "known", 2.0) == [True]
