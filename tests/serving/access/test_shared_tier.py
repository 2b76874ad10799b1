"""The shared tier against a real Valkey: used while it answers, left alone while it does not, and never waited for."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from serving.access.breaker import State
from serving.access.shared import tier as tiers
from serving.access.shared.redis_store import RedisStore
from serving.access.shared.store import CONNECTIONS
from serving.access.shared.tier import RULE, SharedTier, name_of
from serving.config import AccessConfig
from tests.serving.access.test_shared_entry import GRID, KEY, PICTURE, SOURCE, VALUE
from tests.serving.access.valkey import Tally, Valkey
from toolkit.core.clock import VirtualClock

SIZE = len(SOURCE)
NAME = name_of(KEY)
PATIENCE_S = 30.0
"""For a store that answers, on a machine that is busy."""


class Bench:
    """A server, and gateways' tiers before it; time of the breakers moves when told to."""

    def __init__(self, server: Valkey) -> None:
        self.server = server
        self.clock = VirtualClock()
        self.open: list[SharedTier] = []

    def tier(
        self, secret: bytes = b"", url: str = "", limit_s: float = PATIENCE_S, **config: Any
    ) -> tuple[SharedTier, Tally]:
        limits, tally = AccessConfig(**config), Tally()
        store = RedisStore(url or self.server.url)
        self.open.append(SharedTier(limits, GRID, store, self.clock, tally, secret))
        self.open[-1]._limit_s = limit_s
        return self.open[-1], tally

    async def store(self, tier: SharedTier, times: int = 1) -> None:
        for _ in range(times):
            tier.put(KEY, PICTURE)
        while tier.queued_bytes:
            await asyncio.sleep(0.001)

    async def fail(self, tier: SharedTier, times: int = RULE.failures) -> None:
        for _ in range(times):
            assert await tier.get(KEY, SIZE) is None


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        with Valkey() as server:
            bench = Bench(server)
            try:
                await scenario(bench)
            finally:
                for tier in bench.open:
                    await tier.close()
                    await tier.close()
                    assert (tier.queued_bytes, len(tier._calls), tier._slots._value) == (0, 0, CONNECTIONS)

    asyncio.run(main())
    gc.collect(1)  # what was left open would warn now, and warnings are errors here


def test_what_one_gateway_wrote_another_finds() -> None:
    """For a time, under a name of its own."""

    async def scenario(bench: Bench) -> None:
        (one, wrote), (two, read) = bench.tier(), bench.tier()
        assert await two.get(KEY, SIZE) is None
        await bench.store(one)

        assert await two.get(KEY, SIZE) == PICTURE
        assert (wrote.written(), read.looked_up()) == ({"stored": 1}, {"miss": 1, "hit": 1})
        assert read.counts["shared_cache_bytes_total read"] == len(VALUE)
        assert wrote.counts["shared_cache_bytes_total written"] == len(VALUE)
        assert len(read.seen["toolkit_shared_cache_lookup_seconds"]) == 2
        assert 86_390 <= int(bench.server.ask("TTL", NAME)[1:]) <= 86_400

    run(scenario)


@pytest.mark.parametrize(
    "value",
    [b"", b"nonsense", VALUE[:-1], VALUE[:40], VALUE[:4] + b"\x07" + VALUE[5:], VALUE + bytes(70_000)],
    ids=["empty", "garbage", "cut off", "cut off in its head", "of another version", "longer"],
)
def test_a_value_that_is_not_ours_is_a_miss(value: bytes) -> None:
    """The store works, so its breaker stays closed; the next write puts it right."""

    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier()
        bench.server.ask("SET", NAME, value)

        await bench.fail(tier, 5)
        assert tally.looked_up() == {"foreign" if value else "miss": 5}
        assert tier.state is State.CLOSED
        await bench.store(tier)
        assert await tier.get(KEY, SIZE) == PICTURE

    run(scenario)


def test_a_list_in_the_place_of_an_image_is_a_miss() -> None:
    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier()
        bench.server.ask("RPUSH", NAME, "x")

        await bench.fail(tier)
        assert (tally.looked_up(), tier.state) == ({"miss": 3}, State.CLOSED)

    run(scenario)


def test_a_huge_value_is_not_read() -> None:
    """No more of it than the largest entry."""

    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier(shared_cache_max_entry_bytes=4096)
        bench.server.ask("SETRANGE", NAME, "50000000", "x")

        await bench.fail(tier)
        assert tally.looked_up() == {"foreign": 3}
        assert tally.counts["shared_cache_bytes_total read"] == 3 * 4096

    run(scenario)


def test_an_image_over_the_bound_is_not_written() -> None:
    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier(shared_cache_max_entry_bytes=4096)
        await bench.store(tier)

        assert tally.written() == {"too_large": 1}
        assert bench.server.ask("DBSIZE") == b":0\r\n"

    run(scenario)


def test_who_has_no_secret_can_neither_read_nor_write_for_those_who_have() -> None:
    async def scenario(bench: Bench) -> None:
        (ours, tally), (theirs, others) = bench.tier(secret=b"16 bytes or more"), bench.tier()
        await bench.store(theirs)
        assert await ours.get(KEY, SIZE) is None
        await bench.store(ours)
        assert await theirs.get(KEY, SIZE) is None

        assert await ours.get(KEY, SIZE) == PICTURE
        assert (tally.looked_up(), others.looked_up()) == ({"foreign": 1, "hit": 1}, {"foreign": 1})

    run(scenario)


def test_killed_it_is_left_alone_and_used_again_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """Told once when it goes and once when it comes, without a word of credentials."""
    caplog.set_level(logging.INFO, "toolkit.gateway")

    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier(url=bench.server.url.replace("unix://", "unix://me:hidden@"))
        bench.server.ask("CONFIG", "SET", "requirepass", "")
        bench.server.ask("ACL", "SETUSER", "me", "on", ">hidden", "~*", "+@all")
        await bench.store(tier)
        assert await tier.get(KEY, SIZE) == PICTURE
        bench.server.kill()

        await bench.fail(tier)
        assert tier.state is State.OPEN
        await bench.fail(tier, 10)
        await bench.store(tier, 2)
        assert tally.looked_up() == {"hit": 1, "error": 3, "skipped": 10}
        assert tally.written() == {"stored": 1, "dropped": 2}

        bench.clock.advance(RULE.hold_s)
        await bench.fail(tier, 2)  # the probe, and one that it failed for
        bench.clock.advance(RULE.hold_s)
        await bench.fail(tier, 1)
        assert tally.looked_up() == {"hit": 1, "error": 4, "skipped": 12}

        bench.server.start("--user", "me", "on", ">hidden", "~*", "+@all")
        bench.clock.advance(RULE.hold_s)
        assert await tier.get(KEY, SIZE) is None
        assert tier.state is State.CLOSED
        await bench.store(tier)
        assert await tier.get(KEY, SIZE) == PICTURE

    run(scenario)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "without it" in caplog.messages[0] and "answers again" in caplog.messages[1]
    assert "hidden" not in caplog.text


def test_frozen_it_costs_the_limit_and_then_nothing() -> None:
    """Three look-ups wait, no others; answers that come too late meet nobody, and the connections are whole."""

    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier()
        await bench.store(tier)
        tier._limit_s = 0.02
        with bench.server.frozen():
            await bench.fail(tier, 50)
            assert len(tally.seen["toolkit_shared_cache_lookup_seconds"]) == RULE.failures
            assert tally.looked_up() == {"error": 3, "skipped": 47}
        while tier._calls:
            await asyncio.sleep(0.001)

        tier._limit_s = PATIENCE_S
        bench.clock.advance(RULE.hold_s)
        assert await tier.get(KEY, SIZE) == PICTURE

    run(scenario)


def test_a_hundred_at_once_do_not_look_like_a_slow_store() -> None:
    """They take turns on a few connections; who gets none in time does without."""

    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier()
        await bench.store(tier)

        found = await asyncio.gather(*(tier.get(KEY, SIZE) for _ in range(100)))
        assert found == [PICTURE] * 100
        assert int(bench.server.ask("CLIENT", "LIST").count(b"cmd=getrange")) <= CONNECTIONS
        with bench.server.frozen():
            tier._limit_s = 0.02
            await asyncio.gather(*(tier.get(KEY, SIZE) for _ in range(30)))
        assert tally.looked_up() == {"hit": 100, "error": CONNECTIONS, "skipped": 30 - CONNECTIONS}

    run(scenario)


def test_a_caller_that_leaves_takes_nothing_along() -> None:
    """Neither the connection nor the probe."""

    async def scenario(bench: Bench) -> None:
        tier, _ = bench.tier()
        await bench.store(tier)
        bench.server.kill()
        await bench.fail(tier)
        bench.server.start()
        bench.clock.advance(RULE.hold_s)
        with bench.server.frozen():
            asking = asyncio.create_task(tier.get(KEY, SIZE))
            await asyncio.sleep(0.01)
            assert await tier.get(KEY, SIZE) is None  # one probe at a time
            asking.cancel()
            await asyncio.wait([asking])

        await bench.store(tier)
        assert await tier.get(KEY, SIZE) == PICTURE

    run(scenario)


def test_callers_that_leave_while_they_wait_for_a_connection_leave_it_to_others() -> None:
    """Also one that is given it at that very moment."""

    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier()
        await bench.store(tier)
        with bench.server.frozen():
            asking = [asyncio.create_task(tier.get(KEY, SIZE)) for _ in range(CONNECTIONS + 5)]
            await asyncio.sleep(0.01)
            for task in asking[CONNECTIONS:]:
                task.cancel()
            await asyncio.wait(asking[CONNECTIONS:])
        assert await asyncio.gather(*asking[:CONNECTIONS]) == [PICTURE] * CONNECTIONS
        crowd = [asyncio.create_task(tier.get(KEY, SIZE)) for _ in range(40)]
        while any(crowd):
            await asyncio.sleep(0.001)
            for task in crowd[::3]:
                task.cancel()
            crowd = [task for task in crowd if not task.done()]

        assert await tier.get(KEY, SIZE) == PICTURE
        assert set(tally.looked_up()) == {"hit"}

    run(scenario)


def test_the_queue_of_writes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes; what comes beyond is dropped and counted."""

    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier()
        size = len(PICTURE.data_uri)
        tier._writer._most_bytes = 3 * size
        with bench.server.frozen():
            for _ in range(10):
                tier.put(KEY, PICTURE)
                assert tier.queued_bytes <= 3 * size
            assert tally.written() == {"dropped": 7}
        while tier.queued_bytes:
            await asyncio.sleep(0.001)
        assert tally.written() == {"dropped": 7, "stored": 3}

    run(scenario)


def test_closing_writes_what_waits() -> None:
    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier()
        for number in range(20):
            tier.put(bytes([number]), PICTURE)
        await tier.close()

        assert tally.written() == {"stored": 20}
        assert bench.server.ask("DBSIZE") == b":20\r\n"
        tier.put(KEY, PICTURE)
        assert tally.written() == {"stored": 20, "dropped": 1}

    run(scenario)


def test_closing_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written is counted as dropped; nothing is left running."""
    monkeypatch.setattr(tiers, "FLUSH_S", 0.05)

    async def scenario(bench: Bench) -> None:
        tier, tally = bench.tier(limit_s=0.01)
        await bench.store(tier)
        with bench.server.frozen():
            await tier.get(KEY, SIZE)
            for _ in range(5):
                tier.put(KEY, PICTURE)
            await tier.close()
            assert tally.written() == {"stored": 1, "dropped": 5}

    run(scenario)


def test_a_server_of_another_kind_is_a_failure_like_any_other() -> None:
    """One that speaks HTTP, one that talks nonsense, one that hangs up."""

    async def scenario(bench: Bench) -> None:
        for words in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$99999999999999999999\r\n", b"\xff" * 5000, b""):

            async def answer(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, words: bytes = words
            ) -> None:
                await reader.read(100)
                writer.write(words)
                writer.close()

            async with await asyncio.start_unix_server(answer, bench.server.folder / "other") as other:
                tier, tally = bench.tier(url=f"unix://{bench.server.folder / 'other'}")
                await bench.fail(tier)
                tier.put(KEY, PICTURE)
                assert tally.looked_up() == {"error": 3}
                assert tier.state is State.OPEN
                other.close()

    run(scenario)
