"""A request outlives a failing pair where another one serves, and no fault multiplies the work."""

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import replace

import pytest

from serving import health
from serving.attempt import Limits as AttemptLimits
from serving.attempt import Progress
from serving.engines.simulated.effects import Limits
from serving.standing import FAILURES_IN_A_ROW, LATE_PROBES
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import chat, records, rig, until
from tests.serving.stand_ins import FROZEN, INSTANT, SILENT, wire
from toolkit.core.clock import SystemClock

FAILS = wire(status=500, message="Internal error")
NO_TRANSFER = {"transfer_failure_rate": 1}


@contextlib.asynccontextmanager
async def watched(made):
    """The gateway's prober at work."""
    watching = asyncio.create_task(made.gateway.prober.run())
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def flood(made, requests, at_once, **asked):
    """So many requests, so many at a time; their exchanges in order."""
    turn = asyncio.Semaphore(at_once)

    async def one(number):
        async with turn:
            exchange = FakeExchange(chat(stream=number % 3 > 0, user=str(number)), **asked)
            await made.gateway.api.handle(exchange)
            return exchange

    return await asyncio.gather(*(one(number) for number in range(requests)))


def outcomes(tmp_path):
    return Counter(record["outcome"] for record in records(tmp_path))


def attempts_per_request(tmp_path):
    found = records(tmp_path)
    return sum(record["attempts"] for record in found) / len(found)


@pytest.mark.parametrize("stream", [True, False])
def test_a_failed_transfer_is_followed_by_an_answer_from_another_pair(tmp_path, stream):
    """With ids and a room of its own; the record tells both attempts, and the client sees one answer."""

    async def scenario():
        async with rig(tmp_path, prefill_0=NO_TRANSFER, prefill_1={}) as made:
            exchange = await made.ask(chat(stream=stream))
            calls = [call for leg in made.legs.values() for call in leg.calls]
            counted = made.metric("toolkit_retries_total", cause="transfer", result="answered")
            page = await made.ask(b"", method="GET", path="/metrics")
            return exchange, calls, counted, page.text

    exchange, calls, counted, page = asyncio.run(scenario())
    (record,) = records(tmp_path)
    (lost,) = record["lost_attempts"]

    assert exchange.status == 200 and exchange.headers["x-served-by"] == "prefill-1+decode-0"
    assert len({call.body["rid"] for call in calls}) == 4
    assert len({call.body["bootstrap_room"] for call in calls}) == 2
    assert (record["outcome"], record["attempts"], record["prefill"]) == ("completed", 2, "prefill-1")
    assert (lost["prefill"], lost["cause"], lost["then"]) == ("prefill-0", "transfer", "retried")
    assert (
        "transfer failed" in lost["message"] and 0 < lost["ended"] < record["timeline"]["dispatched"] + 1e-6
    )
    assert counted == 1 and "toolkit_retry_budget 2.0" in page


def test_after_the_first_token_nothing_is_made_again(tmp_path):
    """The client has read part of one answer; the beginning of another would not fit it."""

    async def scenario():
        async with rig(tmp_path, decode_0=wire("reset", 2), decode_1=wire("reset", 2)) as made:
            return await made.ask()

    exchange = asyncio.run(scenario())
    (record,) = records(tmp_path)

    assert exchange.status == 200 and "engine_failed" in exchange.text
    assert (record["attempts"], record["lost_attempts"]) == (1, [])


@pytest.mark.parametrize(
    ("fault", "status", "code", "attempts"),
    [
        (wire(status=400, message="bad"), 400, "engine_rejected", 1),
        ({"answer_503": True}, 503, "engine_busy", 1),
        (FAILS, 502, "engine_failed", 3),
    ],
)
def test_the_only_pair_is_asked_again_only_where_that_may_help(tmp_path, fault, status, code, attempts):
    """A wrong request stays wrong, a full engine full; a failure of unknown cause is tried twice more."""

    async def scenario():
        async with rig(tmp_path, prefill_0=FROZEN, decode_0=fault) as made:
            return await made.ask()

    exchange = asyncio.run(scenario())
    (record,) = records(tmp_path)

    assert (exchange.status, exchange.json["error"]["code"]) == (status, code)
    assert record["attempts"] == attempts
    assert [lost["then"] for lost in record["lost_attempts"]] == {
        1: ["no_pair"] if status == 503 else [],
        3: ["retried", "retried", "too_many"],
    }[attempts]


def test_with_one_pair_a_failed_transfer_is_told_at_once_with_the_blacklists_time(tmp_path):
    """Waiting would not help: SGLang gives that decode nothing for 30 s. A probe confirms it, and then nobody tries."""

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.02}}
        async with rig(tmp_path, settings, prefill_0=NO_TRANSFER) as made, watched(made):
            first = await made.ask()
            await until(lambda: not made.gateway.book.ready)
            made.legs["prefill-0"].set()
            calls = len(made.legs["decode-0"].calls)
            second = await made.ask()
            await asyncio.sleep(0.1)
            return first, second, calls, made.gateway.book.ready

    first, second, _, ready = asyncio.run(scenario())

    for exchange in (first, second):
        assert (exchange.status, exchange.json["error"]["code"]) == (503, "engine_unavailable")
        assert 29 <= int(exchange.headers["retry-after"]) <= 32
    assert not ready  # its session is on the blacklist, though transfers would work again
    assert [record["attempts"] for record in records(tmp_path)] == [1, 0]


def test_a_pair_comes_back_with_the_first_probe_that_goes_through(tmp_path):
    """A failure that blacklisted nothing costs the pair nothing but one probe."""
    told = wire(status=500, message="Decode transfer failed for request")

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.02}}
        async with rig(tmp_path, settings, decode_0=told, decode_1={}) as made, watched(made):
            exchange = await made.ask()
            made.legs["decode-0"].set()
            await until(lambda: made.gateway.book.unproven() == [])
            return exchange, {(await made.ask()).headers["x-served-by"] for _ in range(2)}

    exchange, later = asyncio.run(scenario())

    assert exchange.headers["x-served-by"] == "prefill-0+decode-1"
    assert later == {"prefill-0+decode-0"}


def killed(made):
    return made.legs["decode-0"].stand_in.stop()


async def nothing(made):
    pass


@pytest.mark.parametrize(
    ("legs", "strike"),
    [
        ({"prefill_0": {"transfer_failure_rate": 0.2}, "prefill_1": {}}, nothing),
        ({"prefill_0": FROZEN, "prefill_1": {}}, nothing),
        ({"decode_0": {}, "decode_1": {}}, killed),
        ({"decode_0": {"answer_503": True}, "decode_1": {}}, nothing),
        ({"decode_0": FAILS, "decode_1": {}}, nothing),
    ],
    ids=["transfers fail", "prefill frozen", "decode killed", "decode full", "decode fails"],
)
def test_where_a_second_pair_serves_a_fault_fails_nobody_and_costs_few_attempts(tmp_path, legs, strike):
    """60 requests, 4 at a time: all answered, at most 1.15 attempts each."""

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.05}, "retry": {"stall_share": 0.15}}
        async with rig(tmp_path, settings, **legs) as made, watched(made):
            first = await flood(made, 10, 2)
            await strike(made)
            return first + await flood(made, 50, 4)

    exchanges = asyncio.run(scenario())

    assert [exchange.status for exchange in exchanges] == [200] * 60
    assert outcomes(tmp_path) == {"completed": 60}
    assert attempts_per_request(tmp_path) <= 1.15


def test_when_everything_fails_the_budget_bounds_the_work(tmp_path):
    """Every attempt fails everywhere: a tenth more attempts than requests and the minimum, not three times as many."""

    async def scenario():
        async with rig(tmp_path, prefill_0=FAILS, decode_0=FAILS, decode_1=FAILS) as made:
            await flood(made, 60, 8)
            return made.metric("toolkit_retries_refused_total", cause="failed", why="no_budget")

    refused = asyncio.run(scenario())

    assert outcomes(tmp_path) == {"engine_failed": 60}
    assert attempts_per_request(tmp_path) <= (60 + 6 + 3) / 60
    assert refused >= 50


def test_a_client_that_leaves_before_the_retry_leaves_nothing_behind(tmp_path):
    """No further attempt is made for nobody; the rig's teardown checks pairs, slots and connections."""

    async def scenario():
        settings = {"retry": {"base_s": 30.0, "cap_s": 60.0}}
        async with rig(tmp_path, settings, prefill_0=FAILS, decode_0=FAILS, decode_1=FAILS) as made:
            exchange = FakeExchange(chat(), headers={"x-ttft-budget-ms": "100000"})
            task = asyncio.create_task(made.gateway.api.handle(exchange))
            retries = made.gateway.retries
            await until(lambda: retries.left(SystemClock().monotonic()) == 2)
            exchange.hang_up()
            await task
            return sum(len(leg.calls) for leg in made.legs.values())

    calls = asyncio.run(scenario())

    assert calls <= 2
    assert outcomes(tmp_path) == {"client_closed": 1}


def suspected(made):
    """The only pair, made suspect by failures nobody can explain."""
    (state,) = made.gateway.book.pairs.values()
    for _ in range(FAILURES_IN_A_ROW):
        made.gateway.book.failed(state.pair)
    return state


def test_an_overloaded_only_pair_stays_in_rotation(tmp_path, monkeypatch, caplog):
    """So slow that impatient requests and the probe miss their time: 504 for those, answers for the others, never 503."""
    monkeypatch.setattr(health, "PROBE_AGAIN_TIMEOUT_S", 0.4)
    slow = {"settings": {"costs": replace(INSTANT, prefill_s=0.05), "limits": Limits(chunk_tokens=8)}}

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.02}}
        async with rig(tmp_path, settings, prefill_0=slow) as made:
            patient = asyncio.create_task(flood(made, 12, 12, headers={"x-ttft-budget-ms": "60000"}))
            await until(lambda: len(made.legs["prefill-0"].calls) == 12)
            suspected(made)
            async with watched(made):
                impatient = await flood(made, 12, 12, headers={"x-ttft-budget-ms": "60"})
                answered = await patient
            return impatient, answered, made.gateway.book.ready

    impatient, answered, ready = asyncio.run(scenario())

    assert ready and [exchange.status for exchange in answered] == [200] * 12
    assert {exchange.status for exchange in impatient} <= {504, 429}
    assert "did not pass the probe" in caplog.text


@pytest.mark.parametrize(
    ("fault", "probes"), [(FROZEN, 1), (SILENT, LATE_PROBES)], ids=["frozen", "works in vain"]
)
def test_a_suspect_pair_leaves_with_the_first_late_probe_only_if_an_engine_stands_still(
    tmp_path, monkeypatch, fault, probes
):
    """A scheduler that goes on working may be late; one that gives nothing again and again serves nobody."""
    monkeypatch.setattr(health, "PROBE_AGAIN_TIMEOUT_S", 0.1)

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.02}}
        async with rig(tmp_path, settings, decode_0=fault) as made, watched(made):
            suspected(made)
            await until(lambda: not made.gateway.book.ready)
            return len(made.legs["decode-0"].calls)

    assert asyncio.run(scenario()) == probes


def test_a_pair_that_refuses_the_probe_for_want_of_room_stays_in_rotation(tmp_path):
    """503 to the probe is load too; a pair that never served is not let in by it."""

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.02}}
        async with rig(tmp_path, settings, decode_0={"answer_503": True}) as made, watched(made):
            book, state = made.gateway.book, suspected(made)
            await until(lambda: "prefill-0+decode-0" in made.gateway.prober.faults)
            kept = book.ready
            book.disproved(state.pair)
            await asyncio.sleep(0.1)
            return kept, book.ready

    assert asyncio.run(scenario()) == (True, False)


@pytest.mark.slow
def test_150_requests_with_random_faults_end_in_150_outcomes(tmp_path):
    """Faults come and go under the requests; the rig's teardown proves that pairs, seats and slots are all given back."""
    source = random.Random(11)
    faults = [
        {},
        {},
        {},
        FAILS,
        FROZEN,
        SILENT,
        NO_TRANSFER,
        {"answer_503": True},
        wire("reset", 2),
        wire("end", 3),
    ]

    async def scenario():
        settings = {"gateway": {"health_interval_s": 0.02}, "answer_timeout_s": 1.0, "stream_stall_s": 1.0}
        legs = {"prefill_0": {}, "prefill_1": {}, "decode_0": {}, "decode_1": {}}
        async with rig(tmp_path, settings, **legs) as made, watched(made):

            async def meddle():
                while True:
                    leg = made.legs[source.choice(sorted(made.legs))]
                    leg.set(**source.choice(faults))
                    await asyncio.sleep(0.01)

            meddling = asyncio.create_task(meddle())
            try:
                return await flood(made, 150, 12, headers={"x-ttft-budget-ms": "1000"})
            finally:
                meddling.cancel()

    exchanges = asyncio.run(scenario())
    found = records(tmp_path)

    assert len(exchanges) == len(found) == len({record["request_id"] for record in found}) == 150
    assert all(exchange.ended for exchange in exchanges)
    assert outcomes(tmp_path)["internal_error"] == 0 and len(outcomes(tmp_path)) >= 3
    assert all(record["attempts"] <= 3 for record in found)
    assert sum(record["attempts"] for record in found) <= 150 * 1.1 + 3 * 2


def test_a_prefill_that_ends_in_the_moment_it_is_given_up_fails_nobody(tmp_path):
    """Of an answer in one piece nothing has been sent then: the attempt that was granted is made."""

    class Late:
        """Its first attempt's prefill is done just when the attempt is cancelled."""

        made = 0

        async def whole(self, pair, body, limits, progress, on_prefilled):
            self.made += 1
            if self.made == 1:
                try:
                    await asyncio.sleep(2)
                finally:
                    progress.prefill_done_at = progress.first_token_at = SystemClock().monotonic()
            return b"answer"

    async def scenario():
        async with rig(tmp_path, prefill_1={}, decode_1={}) as made:
            answerer = made.gateway.lifecycle._parts.answerer
            answerer._dispatcher = late = Late()
            limits = AttemptLimits(SystemClock().monotonic() + 0.2, stall_s=5, whole_s=5)
            return await answerer.whole(b"", 1, limits, Progress()), late.made

    assert asyncio.run(scenario()) == (b"answer", 2)
