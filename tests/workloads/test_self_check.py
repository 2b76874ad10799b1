"""The generator's own error: measured against a server that says what it did, kept beside every report."""

import asyncio
import json
import time
from dataclasses import replace

import pytest
import typer
import uvloop
from typer.testing import CliRunner

from toolkit.cli.bench import bench
from toolkit.core.http.client import HttpClient
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.alarm import LoopAlarm, TimerFdAlarm, make_alarm
from workloads.driver import Drive
from workloads.fixed_server import EVENT_BYTES, Schedule, Stamps, chunks, read_stamps
from workloads.own_error import SelfCheck, cache_file, describe, keep, last_check
from workloads.record import LoadOutcome, LoadSample
from workloads.selfcheck import FixedServer, Measured, judge, measure, self_check


def measured(
    error_s: float = 0.0, slip_s: float = 0.0, cut: int = 0, gap_error_s: float = 0.0, count: int = 100
) -> Measured:
    """A run whose client was wrong by exactly that much; `cut` of its answers broke off."""
    samples, stamps = [], {}
    for n in range(count):
        due = n * 0.01
        sent = due + slip_s
        written = tuple(1000.0 + sent + 0.1 + k * 0.01 for k in range(5))
        stamps[str(n)] = Stamps(str(n), 1000.0 + sent, 1000.0 + sent, written)
        times = tuple(at - 1000.0 + error_s + k * gap_error_s for k, at in enumerate(written[:3]))
        samples.append(
            LoadSample(
                n,
                WorkloadClass.TEXT_ONLY,
                SloClass.BATCH,
                due,
                LoadOutcome.BROKEN if n < cut else LoadOutcome.COMPLETED,
                sent + 1,
                sent,
                sent,
                times,
                3,
                request_id=str(n),
            )
        )
    return Measured(Drive(tuple(samples), 1.0, 1.0, False), stamps, 5 * count, cpu_s=0.01, took_s=1.0)


def test_the_error_is_the_difference_to_what_the_server_did():
    """TTFT seen here less the time between the server's own read and write; gaps likewise."""
    check = judge(100.0, 1.0, measured(error_s=0.0004, gap_error_s=0.002, slip_s=0.003))

    assert check.ttft_error_p50_s == pytest.approx(0.0004, abs=1e-6)
    assert check.itl_error_p99_s == pytest.approx(0.002, abs=1e-6)
    assert check.slip_p99_s == pytest.approx(0.003, abs=1e-6)
    assert check.us_per_event == pytest.approx(20.0)
    assert (check.honest, check.verified_rate, check.ttft_error_p99_firm) == (True, 100.0, False)


@pytest.mark.parametrize(
    "wrong", [{"error_s": 0.0011}, {"error_s": 0.011}, {"slip_s": 0.006}, {"cut": 1}, {"count": 0}]
)
def test_an_error_over_its_limit_is_not_honest(wrong):
    """Each limit by itself: a median error, a slip, an answer that broke, no answer at all."""
    check = judge(100.0, 1.0, measured(**wrong))

    assert (check.honest, check.verified_rate) == (False, 0.0)


def test_a_late_end_is_not_delivered():
    """Requests that went out after the window are not the load that was asked."""
    assert judge(100.0, 0.5, measured()).delivered == pytest.approx(0.51)


def test_what_is_kept_is_the_best_verified_result(tmp_path):
    """A report carries the highest rate that held; other versions than these were not checked."""
    low = judge(10.0, 1.0, measured())
    high, bad = replace(low, rate=20.0), replace(low, rate=40.0, honest=False)
    path = tmp_path / "deep" / "check.json"

    keep([low, high, bad], path)
    kept = last_check(path)

    assert kept == high
    assert "10:" not in describe(kept) and "at 20/s" in describe(kept)
    path.write_text(json.dumps(replace(high, versions={"toolkit": "0"}).to_dict()))
    assert last_check(path) is None
    path.write_text("{}")
    assert last_check(path) is None
    assert "not checked on this machine" in describe(None)


def test_the_cache_follows_the_usual_rule(tmp_path):
    """$XDG_CACHE_HOME where it is a path of its own; the machine's name is in the file's."""
    import platform

    path = cache_file({"XDG_CACHE_HOME": str(tmp_path)})

    assert path.is_relative_to(tmp_path)
    assert platform.node() in path.name


def test_events_are_as_long_as_an_engines():
    """33 events: tokens, a last chunk with finish_reason and usage, [DONE]."""
    events = [chunk.split(b"\r\n", 1)[1][:-2] for chunk in chunks(Schedule())]

    assert len(events) == 33
    assert {len(event) for event in events[:-1]} == {EVENT_BYTES}
    assert json.loads(events[31][6:])["usage"]["completion_tokens"] == Schedule().tokens == 31
    assert events[32] == b"data: [DONE]\n\n"


@pytest.mark.slow
def test_the_server_keeps_its_schedule_and_says_what_it_did():
    """No event before its time, one stamp per event, and the stamps are given once."""
    schedule = Schedule(ttft_s=0.02, itl_s=0.002, events=5)
    before = time.monotonic()

    async def ask(url: str) -> tuple[bytes, list[Stamps], list[Stamps]]:
        client = HttpClient()
        response = await client.send("POST", f"{url}/v1/chat/completions", (), b"x" * 300_000)
        body = await response.read()
        stamps = [read_stamps(await (await client.send("GET", f"{url}/stamps")).read()) for _ in range(2)]
        await client.close()
        return body, *stamps

    with FixedServer(schedule) as server:
        body, (stamps,), again = asyncio.run(ask(server.url))

    assert body.count(b"data: ") == 5
    assert before < stamps.received_at <= stamps.read_at
    assert len(stamps.written_at) == 5
    for n, at in enumerate(stamps.written_at):
        assert at >= stamps.read_at + 0.02 + n * 0.002
    assert again == []


@pytest.mark.slow
def test_the_production_path_is_what_is_measured():
    """Every answer is joined with the server's stamps by its id; no token comes before it was written."""
    schedule = Schedule(ttft_s=0.01, itl_s=0.001, events=5)

    with FixedServer(schedule) as server:
        result = measure(server.url, schedule, rate=100.0, duration_s=0.3, seed=1)

    samples = result.drive.samples
    assert len(samples) > 10
    assert all(s.completed and s.tokens == 3 and len(s.token_times_s) == 3 for s in samples)
    assert judge(100.0, 0.3, result).ttft_error_p50_s > 0
    assert {s.request_id for s in samples} == set(result.stamps)


@pytest.mark.slow
def test_a_rate_that_does_not_hold_is_halved(monkeypatch):
    """The highest verified rate is known whatever was asked."""
    asked: list[float] = []

    def scripted(url, schedule, rate, duration_s, seed):
        asked.append(rate)
        return measured(error_s=0.0 if rate <= 100 else 1.0)

    monkeypatch.setattr("workloads.selfcheck.measure", scripted)

    results = self_check(400.0, 1.0)

    assert asked == [400.0, 200.0, 100.0]
    assert [(r.honest, r.verified_rate) for r in results] == [(False, 100.0), (False, 100.0), (True, 100.0)]


def test_the_command_prints_keeps_and_judges(tmp_path, monkeypatch):
    """Exit 1 when the generator is not honest at the asked rate; the last check is in the cache."""
    good = judge(100.0, 1.0, measured())
    results: tuple[SelfCheck, ...] = (replace(good, rate=200.0, honest=False), good)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("workloads.selfcheck.self_check", lambda rate, duration_s, seed: results)
    app = typer.Typer()
    app.command()(bench)

    failed = CliRunner().invoke(app, ["--self-check", "--rate", "200"])

    assert failed.exit_code == 1
    assert "TTFT error p99 ms" in failed.stdout and "highest verified rate 100/s" in failed.stdout
    assert last_check(cache_file({"XDG_CACHE_HOME": str(tmp_path)})) == good
    results = (good,)
    passed = CliRunner().invoke(app, ["--self-check", "--json"])
    assert passed.exit_code == 0
    assert json.loads(passed.stdout)[0]["honest"] is True


def test_checking_less_does_not_lower_what_was_verified(tmp_path):
    """An honest check of one lower rate leaves the higher one; a failed one does not."""
    path = tmp_path / "check.json"
    high, low = judge(100.0, 1.0, measured()), judge(5.0, 1.0, measured())

    assert keep((high,), path) == high
    assert keep((low,), path) == high
    assert last_check(path) == high
    failed = replace(low, honest=False)
    assert keep((failed,), path) == failed == last_check(path)


@pytest.mark.parametrize("kind", [TimerFdAlarm, LoopAlarm])
def test_an_alarm_rings_once_and_never_early(kind):
    """The last time that was set counts; a time in the past is now; closed is silent."""

    async def main() -> list[str]:
        alarm, rung, over = kind(), [], asyncio.Event()
        at = time.monotonic() + 0.02
        alarm.set(time.monotonic() + 0.001, lambda: rung.append("replaced"))
        alarm.set(
            at, lambda: (rung.append("late" if time.monotonic() >= at - 0.001 else "early"), over.set())
        )
        await over.wait()
        over.clear()
        alarm.set(0.0, lambda: (rung.append("past"), over.set()))
        await over.wait()
        alarm.set(time.monotonic() + 0.001, lambda: rung.append("closed"))
        alarm.close()
        await asyncio.sleep(0.005)
        return rung

    assert uvloop.run(main()) == ["late", "past"]


def test_pacing_alone_delivers_two_thousand_a_second():
    """The pacer's own cost per deadline leaves most of a core at 2,000/s."""

    async def main() -> float:
        alarm, left, over = make_alarm(), 2000, asyncio.Event()
        begin = time.monotonic()

        def ring() -> None:
            nonlocal left
            left -= 1
            if left:
                alarm.set(begin, ring)
            else:
                over.set()

        cpu = time.process_time()
        alarm.set(begin, ring)
        await over.wait()
        alarm.close()
        return time.process_time() - cpu

    assert uvloop.run(main()) < 0.5
