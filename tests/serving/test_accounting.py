"""Whatever becomes of a request, it ends in one outcome and gives back all it took: thousands of them, with random faults, in
virtual time. Only the engines are not real (faulty_engines.py)."""

import asyncio
import itertools
import logging
import random
import time
from collections import Counter
from dataclasses import dataclass

import pytest

from serving.config import ServeConfig
from serving.gateway import Gateway
from serving.retry_config import RetryConfig
from serving.service import EngineEndpoint, Service
from tests.serving import virtual_loop
from tests.serving.fake_exchange import FakeExchange
from tests.serving.faulty_engines import NEVER_S, Fate, FaultyEngines
from tests.serving.rig import MODEL, chat, records
from tests.serving.test_lifecycle import picture, with_images
from toolkit.core.config import merge
from toolkit.core.sample import Outcome

PREFILLS, DECODES = 2, 2
PREFILL_S = 0.004
CALM, CROWD = 100.0, 1500.0
"""Requests per second; a crowd comes for CROWD_S every WAVE_S. The prefills compute 500 a second."""
WAVE_S, CROWD_S = 3.0, 0.15
ODDS = dict.fromkeys(Fate, 0.012) | {Fate.SERVED: 0.85}
"""Of an attempt's fates."""


class Deaf(FakeExchange):
    """A client that stops reading after the head."""

    async def send(self, chunk):
        await asyncio.sleep(NEVER_S)


@dataclass
class Client:
    """What one request is, and when its client leaves (seconds; None: never)."""

    exchange: FakeExchange
    leaves_s: float | None = None
    leaves_at_first: bool = False


def bad_input(source):
    return source.choice(
        [
            b"{oops",
            b"[]",
            chat(model="another"),
            chat(max_tokens=-1),
            {"model": "m", "messages": []},
            with_images("data:image/png;base64,aGVsbG8=", stream=True),
            with_images("http://127.0.0.1/no.png"),
        ]
    )


def client(source, photo):
    """One of all kinds of clients, with one of all kinds of requests."""
    fields = {"stream": source.random() < 0.7, "max_tokens": source.choice((2, 16, 64, 2500, 4000))}
    if source.random() < 0.05:
        fields["n"] = 2
    body = with_images(photo, **fields) if source.random() < 0.02 else chat(**fields)
    headers = {"x-slo-class": source.choice(("standard",) * 6 + ("realtime", "batch"))}
    kind = source.random()
    if kind < 0.06:
        return Client(FakeExchange(bad_input(source), headers=headers))
    if kind < 0.12:
        headers["x-ttft-budget-ms"] = str(source.randint(1, 60))
    made = Client(FakeExchange(body, headers=headers))
    if 0.12 <= kind < 0.20:
        made.leaves_s = source.expovariate(10.0)
    elif 0.20 <= kind < 0.23:
        made.exchange.stalled_body, made.leaves_s = True, source.uniform(0, 5)
    elif 0.23 <= kind < 0.26:
        made.leaves_at_first = True
    elif 0.26 <= kind < 0.27:
        made = Client(Deaf(body, headers=headers))
    return made


class Play:
    """So many requests through a whole gateway, and what is left when all is over."""

    def __init__(self, run_dir, seed, monkeypatch):
        self._source = random.Random(seed)
        endpoints = tuple(
            EngineEndpoint(name=f"{role}-{n}", role=role, url=f"http://{role}-{n}", bootstrap_port=1)
            for role, count in (("prefill", PREFILLS), ("decode", DECODES))
            for n in range(count)
        )
        settings = {
            "model": MODEL,
            "gateway": {"health_interval_s": 0.5},
            "schedule": {"max_waiting": 96, "min_in_flight": 8},
            "batch": {"ttft_budget_s": 10},
            "stream_stall_s": 2,
            "answer_timeout_s": 20,
        }
        service = Service(
            config=ServeConfig.model_validate(merge({}, settings)),
            engines=endpoints,
            gateway_url="http://127.0.0.1:1",
            model_name="m",
            started_at=time.time(),
        )
        self.engines = FaultyEngines(endpoints, random.Random(seed + 1), ODDS, PREFILL_S)
        monkeypatch.setattr("serving.gateway.HttpClient", lambda: self.engines)
        clock = virtual_loop.LoopClock(asyncio.get_running_loop())
        self.gateway = Gateway(service, run_dir, clock, random.Random(seed + 2))
        self.exchanges: list[FakeExchange] = []
        self.looks = self.leased = 0
        self.lasted_s = 0.0

    async def run(self, requests):
        gateway = self.gateway
        await gateway.start()
        beside = (gateway.prober.run(), gateway.kv.run(), self._weather(), self._audit())
        around = [asyncio.create_task(work) for work in beside]
        try:
            async with asyncio.timeout(60):
                while not gateway.book.ready:
                    await asyncio.sleep(0.05)
            began = asyncio.get_running_loop().time()
            await self._load(requests)
            self.lasted_s = asyncio.get_running_loop().time() - began
        finally:
            for task in around:
                if task.done():
                    task.result()
                task.cancel()
            await asyncio.gather(*around, return_exceptions=True)
        await gateway.dispatcher.drain()

    async def _load(self, requests):
        source, began, photo = self._source, asyncio.get_running_loop().time(), picture()
        async with asyncio.TaskGroup() as group:
            for _ in range(requests):
                crowd = (asyncio.get_running_loop().time() - began) % WAVE_S < CROWD_S
                await asyncio.sleep(source.expovariate(CROWD if crowd else CALM))
                group.create_task(self._ask(client(source, photo)))

    async def _ask(self, made):
        exchange = made.exchange
        self.exchanges.append(exchange)
        leaving = asyncio.create_task(self._leave(made))
        try:
            await self.gateway.api.handle(exchange)
        finally:
            leaving.cancel()

    async def _leave(self, made):
        if made.leaves_at_first:
            await made.exchange.first_piece.wait()
        else:
            await asyncio.sleep(NEVER_S if made.leaves_s is None else made.leaves_s)
        made.exchange.hang_up()

    async def _weather(self):
        """Now and then an engine goes down, or stands still, for up to 2 s."""
        source = self._source
        while True:
            await asyncio.sleep(source.uniform(2, 10))
            struck = source.choice(sorted(self.gateway.book.engines))
            self.engines.strike(struck, source.choice(("down", "frozen")))
            await asyncio.sleep(source.uniform(0.1, 2))
            self.engines.strike(struck, "well")

    async def _audit(self):
        """The books balance at any moment, not only at the end."""
        while True:
            await asyncio.sleep(0.5)
            self.gateway.admission.check()
            self.leased += self.gateway.admission.leases.binding
            taken = sum(state.in_flight for state in self.gateway.book.pairs.values())
            assert taken <= 2 * self.gateway.admission.running
            self.looks += 1

    def check(self):
        """Nothing is held by anybody."""
        gateway = self.gateway
        gateway.admission.check()
        gateway.book.check()
        assert gateway.admission.idle and gateway.lifecycle.open_requests == 0
        assert not gateway.admission.leases.holders
        assert not any(pool.leased for pool in gateway.admission.leases.pools.values())
        assert gateway.pool.busy == gateway.pool.queued == 0
        assert self.engines.open_connections == 0
        assert self.engines.working == {}


@pytest.fixture
def played(tmp_path, monkeypatch, caplog):
    """Play(requests, seed) in virtual time, to the end of the gateway's life; with the records of its journal."""
    for module in ("serving.access.workers", "serving.tokenizer.counting"):
        monkeypatch.setattr(f"{module}.ThreadPoolExecutor", virtual_loop.AtOnce)
    caplog.set_level(logging.CRITICAL, "toolkit")

    runs = itertools.count()

    def play(requests, seed):
        run_dir = tmp_path / str(next(runs))

        async def scenario():
            made = Play(run_dir, seed, monkeypatch)
            try:
                await made.run(requests)
                made.check()
            finally:
                await made.gateway.close()
            return made

        return virtual_loop.run(scenario()), records(run_dir)

    return play


def accounted(play, found, requests):
    """Outcomes = requests, in the journal, in the metrics and for each client."""
    assert len(play.exchanges) == len(found) == len({record["request_id"] for record in found}) == requests
    outcomes = Counter(record["outcome"] for record in found)
    counted = Counter()
    for family in play.gateway.telemetry.registry.collect():
        for sample in family.samples:
            if sample.name == "toolkit_requests_total":
                counted[sample.labels["outcome"]] += int(sample.value)
    assert counted == outcomes
    assert outcomes[Outcome.INTERNAL_ERROR] == 0
    for exchange in play.exchanges:
        assert exchange.ended or exchange.hung_up or isinstance(exchange, Deaf)
    attempts = sum(record["attempts"] for record in found)
    retries = sum(lost["then"] == "retried" for record in found for lost in record["lost_attempts"])
    budget = RetryConfig()
    most = budget.budget_share * requests + budget.budget_least * (1 + play.lasted_s / budget.window_s)
    assert 0 < retries <= most and attempts <= 2 * requests
    return outcomes


@pytest.mark.slow
def test_2000_requests_with_random_faults_end_in_2000_outcomes_and_leave_nothing(played):
    """Hang-ups, bad input, late and deaf clients, engines that refuse, break, fall silent, lose the KV cache or go away: seats,
    slots, leases, pairs, connections and what the engines work on are all given back, whatever happened."""
    play, found = played(2000, seed=1)
    outcomes = accounted(play, found, 2000)

    assert set(outcomes) == set(Outcome) - {Outcome.INTERNAL_ERROR}
    assert set(play.engines.drawn) == set(Fate)
    assert play.looks > 20 and play.leased > play.looks / 2
    assert any(record["error_code"] == "kv_lease_exceeded" for record in found)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_outcomes(played):
    """Nothing of a run depends on this machine's speed."""
    runs = [accounted(*played(100, seed=7), 100) for _ in range(2)]

    assert runs[0] == runs[1]


@pytest.mark.proof
def test_10000_requests_with_random_faults_end_in_10000_outcomes_and_leave_nothing(played):
    """The same with other dice, for longer."""
    accounted(*played(10_000, seed=2), 10_000)
