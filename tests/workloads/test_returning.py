"""Who was told to come back later does so once it is later, and is never counted twice."""

import asyncio
import json
from dataclasses import replace

import pytest

from tests.workloads.test_driver import Rig, Scripted, VirtualAlarm, prepared, record
from toolkit.core.sample import SloClass, WorkloadClass
from toolkit.core.slo import DEFAULT_SLOS
from workloads.bench import run_bench
from workloads.driver import LEAD_S, Driver
from workloads.profile import load_profile
from workloads.record import LoadOutcome, LoadSample
from workloads.report.render import remarks, to_json
from workloads.report.summary import summarise
from workloads.returning import Returning, Returns, retry_after_s

ONCE = Returning(tries=1)
REFUSED = LoadSample(
    3,
    WorkloadClass.TEXT_ONLY,
    SloClass.STANDARD,
    1.0,
    LoadOutcome.REFUSED,
    1.5,
    1.0,
    status=429,
    code="queue_full",
    retry_after_s=4.0,
)


def refuse(item, sent_s, told_s=2.0):
    return replace(
        record(item, sent_s, LoadOutcome.REFUSED), status=429, retry_after_s=told_s, attempt=item.attempt
    )


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 7.0),
        ("Sun, 06 Nov 1994 08:49:00 GMT", 0.0),
        ("-3", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("9" * 5000, None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_retry_after_is_seconds_or_a_date(value, seconds):
    """784111770 is seven seconds before that date; a date that is over means at once; nonsense means nothing."""
    assert retry_after_s(value, 784111770.0) == seconds


def test_a_client_comes_back_after_what_it_was_told_and_a_moment_of_its_own():
    """From the refusal's end; the moment is seeded, so that a repeated run is the same."""
    at_s = Returns(ONCE, seed=1).at_s(REFUSED)

    assert at_s is not None
    assert 5.5 <= at_s < 6.5
    assert at_s == Returns(ONCE, seed=1).at_s(REFUSED)
    assert at_s != Returns(ONCE, seed=2).at_s(REFUSED)
    assert at_s != Returns(ONCE, seed=1).at_s(replace(REFUSED, index=4))
    assert Returns(Returning(tries=1, jitter_s=0), 1).at_s(REFUSED) == 5.5


@pytest.mark.parametrize(
    "changed",
    [
        {"status": 500},
        {"status": 504},
        {"retry_after_s": None},
        {"attempt": 1},
        {"outcome": LoadOutcome.BROKEN},
    ],
    ids=str,
)
def test_nobody_else_comes_back(changed):
    """Other failures, refusals without a time, and those who have tried as often as they will."""
    assert Returns(ONCE, 1).at_s(replace(REFUSED, **changed)) is None


def test_clients_give_up_unless_the_profile_says_otherwise():
    """Only the surge profile does."""
    assert Returns(load_profile("mixed").returning, 1).at_s(REFUSED) is None
    assert Returns(load_profile("surge").returning, 1).at_s(REFUSED) is not None


def test_a_share_of_the_clients_comes_back():
    """The same ones each time they are refused: patience is theirs, not the moment's."""
    half = Returns(Returning(tries=9, share=0.5), 1)
    back = [[half.at_s(replace(REFUSED, index=n, attempt=a)) is not None for n in range(400)] for a in (0, 3)]

    assert 160 < sum(back[0]) < 240
    assert back[0] == back[1]


def test_who_comes_back_sends_the_same_request_again():
    """Refused at 1 s, told 2 s: sent again at 3 s, between the others, as attempt 1."""
    rig, sent = Rig(), []

    def script(item, started_at, ended):
        now = rig.clock.monotonic() - started_at
        sent.append((item.planned.index, item.attempt, round(now, 3), item.body))
        ended(record(item, now) if item.attempt or item.planned.index else refuse(item, now))

    drive = _drive(rig, prepared(1.0, 2.0, 4.0), script, Returning(tries=1, jitter_s=0))

    assert [one[:3] for one in sent] == [(0, 0, 1.0), (1, 0, 2.0), (0, 1, 3.0), (2, 0, 4.0)]
    assert sent[0][3] is sent[2][3]
    assert [(s.index, s.attempt) for s in drive.samples] == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert drive.samples[1].intended_s == pytest.approx(3.0)
    assert rig.progress[-1][1:] == (3, 3, 1), "progress tells of the plan"


def test_they_come_back_after_the_window_but_not_after_the_drain():
    """The window is 10 s, the drain 5: who was told 12 s at 1 s comes, who was told it at 9 s would come too late."""
    rig, sent = Rig(), []

    def script(item, started_at, ended):
        now = rig.clock.monotonic() - started_at
        sent.append((item.planned.index, item.attempt, round(now, 3)))
        ended(record(item, now) if item.attempt else refuse(item, now, told_s=12.0))

    drive = _drive(rig, prepared(1.0, 9.0), script, Returning(tries=1, jitter_s=0))

    assert sent == [(0, 0, 1.0), (1, 0, 9.0), (0, 1, 13.0)]
    assert len(drive.samples) == 3
    assert drive.window_s == 10.0
    assert rig.clock.monotonic() == pytest.approx(100.0 + LEAD_S + 13.0), "nobody else comes: the run is over"
    assert drive.ended_s == pytest.approx(9.0), "the last answer to a first attempt"


def test_each_try_is_an_attempt():
    """Three tries, all refused: attempts 0 to 3, then the client gives up."""
    rig = Rig()

    def script(item, started_at, ended):
        ended(refuse(item, rig.clock.monotonic() - started_at, told_s=1.0))

    drive = _drive(rig, prepared(0.5), script, Returning(tries=3, jitter_s=0))

    assert [(s.attempt, round(s.intended_s, 3)) for s in drive.samples] == [
        (0, 0.5),
        (1, 1.5),
        (2, 2.5),
        (3, 3.5),
    ]


def _drive(rig, requests, script, asked):
    """As Rig.run, with clients that come back."""

    async def main():
        driver = Driver(
            requests,
            _ByAttempt(Scripted(script)),
            rig.clock,
            10.0,
            5.0,
            alarm=VirtualAlarm(rig),
            comes_back=Returns(asked, 1).at_s,
        )
        drive = await driver.run(rig.stop)
        progress = driver.progress()
        rig.progress.append((progress.elapsed_s, progress.sent, progress.ended, progress.failed))
        return drive

    return asyncio.run(main())


class _ByAttempt:
    """Marks each record with its request's attempt, as the real caller does."""

    def __init__(self, caller):
        self._caller = caller

    def begin(self, item, started_at, on_end):
        self._caller.begin(item, started_at, lambda sample: on_end(replace(sample, attempt=item.attempt)))

    def cut_off(self):
        self._caller.cut_off()


def test_offer_percentiles_and_goodput_are_those_of_first_attempts():
    """Ten offered, four refused, four came back, three admitted: still ten offered, six good."""
    times = (1.2, 1.25)

    def done(index, attempt=0):
        return LoadSample(
            index,
            WorkloadClass.TEXT_ONLY,
            SloClass.STANDARD,
            1.0,
            LoadOutcome.COMPLETED,
            1.3,
            1.0,
            token_times_s=times,
            tokens=2,
            attempt=attempt,
            status=200,
        )

    first = [done(n) for n in range(6)] + [replace(REFUSED, index=n) for n in range(6, 10)]
    again = [done(n, 1) for n in range(6, 9)] + [replace(REFUSED, index=9, attempt=1)]

    whole, plain = (
        summarise(samples, DEFAULT_SLOS, 10.0, 12.0, interrupted=False, cpu_share=0.1)
        for samples in ([*first, *again], first)
    )

    assert whole.total == plain.total
    assert whole.groups == plain.groups
    assert whole.generator == plain.generator
    assert (whole.total.offered, whole.total.completed, whole.total.goodput) == (10, 6, 0.6)
    assert (whole.returned.came_back, whole.returned.admitted, whole.returned.good) == (4, 3, 3)


def test_old_files_hold_first_attempts():
    """A line without the new keys is read as what it was."""
    line = REFUSED.to_dict()
    again = LoadSample.from_dict(json.loads(json.dumps(line)))
    assert (again.attempt, again.retry_after_s) == (0, 4.0)

    del line["attempt"], line["retry_after_s"]
    old = LoadSample.from_dict(line)
    assert (old.attempt, old.first, old.retry_after_s) == (0, True, None)


SMALL = """
name = "small"
duration_s = 1.0
rate = 40.0
drain_s = 5.0
[returning]
tries = 1
jitter_s = 0.2
[classes.text_only]
weight = 1
"""


@pytest.mark.slow
def test_over_the_wire_a_refused_client_comes_back_and_is_told_apart(chat_server, scripts, tmp_path):
    """The fifth request meets a 429 that says one second; its second attempt is answered, and the report says so."""

    def script(body):
        if len(chat_server.bodies) == 5:
            return scripts.error(429, "queue_full", (("retry-after", "1"),))
        return default(body)

    default, chat_server.script = chat_server.script, script
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")

    result = run_bench(load_profile(str(path)), chat_server.url, tmp_path / "run")

    lines = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    again = next(line for line in lines if line["attempt"] == 1)
    before = next(line for line in lines if line["index"] == again["index"] and line["attempt"] == 0)
    assert (before["status"], before["retry_after_s"], again["outcome"]) == (429, 1.0, "completed")
    assert 1.0 <= again["sent_s"] - before["ended_s"] < 1.5
    assert chat_server.bodies.count(chat_server.bodies[4]) == 2
    assert result.summary.total.offered == len(lines) - 1
    assert any("came back: 1, admitted 1" in line for line in remarks(result.facts, result.summary))
    assert to_json(result.facts, result.summary)["returned"] == {"came_back": 1, "admitted": 1, "good": 1}
