"""What decode engines say of their KV pools: asked for at the edge, each answer told once."""

import asyncio

import orjson

from serving.pool_watch import MISSES, PoolWatch
from serving.schedule.pool import Report
from serving.service import EngineEndpoint
from toolkit.core.http.errors import TransportError

DECODE = EngineEndpoint(name="decode-0", role="decode", url="http://d")
LOAD = {"timestamp": 1.5, "max_total_num_tokens": 1000, "num_used_tokens": 40}


class Response:
    def __init__(self, status, document):
        self.status, self._body = status, orjson.dumps(document)

    async def read(self, most):
        assert len(self._body) <= most
        return self._body

    def close(self):
        pass


class Engine:
    """An HTTP client before one engine that answers from a table; a path without an answer breaks the connection."""

    def __init__(self, **answers):
        self.answers, self.asked, self.up, self.told = answers, [], True, []

    async def send(self, method, url):
        path = url.removeprefix("http://d/").partition("?")[0].rpartition("/")[2]
        self.asked.append(path)
        if path not in self.answers:
            raise TransportError("gone")
        return Response(*self.answers[path])

    def looks(self, count=1):
        async def scenario():
            for _ in range(count):
                await self.watch.look()

        self.watch = getattr(self, "watch", None) or PoolWatch(
            self, (DECODE,), lambda _: self.up, lambda name, report: self.told.append((name, report)), 1.0
        )
        asyncio.run(scenario())
        told, self.told = self.told, []
        return told


def loads(*ranks):
    return 200, {"loads": [{**LOAD, **rank} for rank in ranks]}


def test_the_size_is_asked_for_once_and_the_use_each_time():
    """/server_info goes through the scheduler, /v1/loads does not."""
    engine = Engine(loads=loads({}), server_info=(200, {"page_size": 16}))

    assert engine.looks(2) == [("decode-0", Report(1000, 16, 1, 40, (1.5,)))] * 2
    assert engine.asked == ["loads", "server_info", "loads"]


def test_a_pool_of_several_ranks_is_as_many_times_the_least():
    """A request lives in one of them."""
    engine = Engine(
        loads=loads({}, {"max_total_num_tokens": 900, "timestamp": 1.6}),
        server_info=(200, {"page_size": None}),
    )

    assert engine.looks() == [("decode-0", Report(900, 1, 2, 80, (1.5, 1.6)))]


def test_an_engine_that_starts_anew_is_asked_for_its_size_again():
    """It may have come back with another; while it is down nothing is said."""
    engine = Engine(loads=loads({}), server_info=(200, {"page_size": 16}))
    engine.looks()
    engine.up = False
    assert engine.looks() == []
    engine.up = True
    engine.answers["server_info"] = (200, {"page_size": 32})

    assert engine.looks() == [("decode-0", Report(1000, 32, 1, 40, (1.5,)))]


def test_what_cannot_be_used_is_told_as_silence(caplog):
    """Another version, a closed path, nonsense: no pool is made up, and it is logged once."""
    for answers in (
        {"loads": (404, {})},
        {"loads": (200, {"loads": []})},
        {"loads": (200, [1])},
        {"loads": (200, {"loads": {"a": 1}})},
        {"loads": loads({"disaggregation": "x"}), "server_info": (200, {"page_size": 16})},
        {"loads": loads({"disaggregation": [1]}), "server_info": (200, {"page_size": 16})},
        {"loads": loads({"max_total_num_tokens": 1e308})},
        {"loads": loads({"num_used_tokens": 2**53}), "server_info": (200, {"page_size": 16})},
        {"loads": loads(*[{"max_total_num_tokens": 2**52}] * 2), "server_info": (200, {"page_size": 16})},
        {"loads": loads({}), "server_info": (401, {})},
        {"loads": loads({"max_total_num_tokens": 0}), "server_info": (200, {"page_size": 16})},
    ):
        engine = Engine(**answers)
        caplog.clear()
        assert engine.looks(2) == [("decode-0", None)] * 2, answers
        assert len(caplog.records) == 1


def test_it_looks_as_soon_as_an_engine_is_up():
    """Not one interval later: its first requests come as soon as it has proven itself."""
    engine = Engine(loads=loads({}), server_info=(200, {"page_size": 16}))
    engine.up = False

    async def scenario():
        told = asyncio.Event()
        watch = PoolWatch(engine, (DECODE,), lambda _: engine.up, lambda *_: told.set(), 60.0)
        running = asyncio.create_task(watch.run())
        await asyncio.sleep(0)
        engine.up = True
        async with asyncio.timeout(5.0):
            await told.wait()
        running.cancel()

    asyncio.run(scenario())


def test_a_look_that_fails_changes_nothing_but_for_an_engine_that_has_never_told():
    """Load is no silence."""
    engine = Engine(loads=loads({}), server_info=(200, {"page_size": 16}))
    engine.looks()
    engine.answers.clear()
    assert engine.looks(2 * MISSES) == []

    assert Engine().looks(MISSES) == [("decode-0", None)]
