"""Gateways that share: one decode for all of them, and every request answered whatever becomes of the store."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serving.access.fetch import Fetcher
from serving.access.prepare import Access
from serving.access.shared.configured import shared_tier
from serving.access.shared.tier import RULE
from serving.access.workers import DecodePool
from serving.config import AccessConfig, ServeConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved
from tests.serving.access.test_data_uri import data_uri
from tests.serving.access.test_shared_entry import GRID
from tests.serving.access.valkey import Tally, Valkey
from tests.serving.access.web import Server, nowhere, reply
from tests.serving.rig import chat, rig
from toolkit.core.clock import VirtualClock
from toolkit.core.config import load
from toolkit.core.errors import InvalidRequest, UsageFault

PHOTO = saved(pictures.photo(), "JPEG")
ARROW = saved(pictures.arrow(), "PNG")
PATIENCE_S = 30.0
"""For a store that answers, on a machine that is busy."""


class Gateway:
    """The access layer of one gateway, all of it real."""

    def __init__(self, clock: VirtualClock, **config: Any) -> None:
        limits = AccessConfig(**{"workers": 1, **config})
        self.clock = clock
        self.tally = Tally()
        pool = DecodePool(limits, clock)
        shared = self.shared = shared_tier(limits, GRID, clock, self.tally)
        assert shared is not None
        shared._limit_s = PATIENCE_S
        fetcher = Fetcher(limits, pool, clock, resolve=nowhere)
        self.access = Access(limits, GRID, fetcher, pool, clock, self.tally, shared)

    @property
    def decodes(self) -> int:
        return len(self.tally.seen.get("toolkit_image_line_seconds", ()))

    async def ask(self, uri: str) -> str:
        prepared = await self.access.prepare([uri], self.clock.monotonic() + 30)
        return prepared.images[0].data_uri

    async def written(self) -> None:
        """Until nothing waits to be written."""
        while self.shared.queued_bytes:
            await asyncio.sleep(0.001)


def run(scenario: Callable[[Valkey, Callable[..., Gateway], VirtualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        made: list[Gateway] = []
        clock = VirtualClock()
        with Valkey() as server:

            def gateway(**config: Any) -> Gateway:
                made.append(Gateway(clock, **{"shared_cache_url": server.url, **config}))
                return made[-1]

            try:
                await scenario(server, gateway, clock)
            finally:
                for one in made:
                    await one.access.close()
                    one.access._held.check()

    asyncio.run(main())
    gc.collect(1)  # what was left open would warn now, and warnings are errors here


def test_two_gateways_share_one_decode() -> None:
    """And what came from there is then held in memory, so the store is asked once."""

    async def scenario(server: Valkey, gateway: Callable[..., Gateway], clock: VirtualClock) -> None:
        one, two = gateway(), gateway()
        picture = await one.ask(data_uri(PHOTO))
        await one.written()

        found = await asyncio.gather(*(two.ask(data_uri(PHOTO)) for _ in range(20)))
        assert found == [picture] * 20
        assert await two.ask(data_uri(PHOTO)) == picture
        assert (one.decodes, two.decodes) == (1, 0)
        assert (one.tally.looked_up(), two.tally.looked_up()) == ({"miss": 1}, {"hit": 1})
        assert two.tally.counts["image_cache_total memory hit"] == 1
        assert two.tally.written() == {}

    run(scenario)


def test_the_record_is_that_of_this_request() -> None:
    """Sizes and tokens as decoded, origin as it came here."""

    async def scenario(server: Valkey, gateway: Callable[..., Gateway], clock: VirtualClock) -> None:
        web = Server(lambda _: reply(200, ARROW))
        async with await asyncio.start_server(web.serve, "127.0.0.1") as listening:
            web.port = listening.sockets[0].getsockname()[1]
            one, two = gateway(), gateway(allowed_hosts=(f"127.0.0.1:{web.port}",))
            made = (await one.access.prepare([data_uri(ARROW)], 30)).images[0].record
            await one.written()
            found = (await two.access.prepare([web.url()], 30)).images[0].record
            listening.close()

        assert (two.decodes, made.origin, found.origin) == (0, "data", "url")
        assert (found.width, found.height, found.format, found.size_bytes) == (60, 40, "png", len(ARROW))
        assert (made.cache, found.cache) == ("", "shared")
        assert (found.tokens, found.prepared_width) == (made.tokens, made.prepared_width)

    run(scenario)


def test_gateways_of_other_limits_or_secrets_share_nothing() -> None:
    """The recipe keeps them apart; a secret of their own does too."""

    async def scenario(server: Valkey, gateway: Callable[..., Gateway], clock: VirtualClock) -> None:
        secret = server.folder / "secret"
        secret.write_text("sixteen bytes or more\n")
        asked = [gateway(), gateway(handover="jpeg"), gateway(shared_cache_key_file=str(secret))]
        for one in asked:
            await one.ask(data_uri(PHOTO))
            await one.written()

        assert [one.decodes for one in asked] == [1, 1, 1]
        assert [one.tally.looked_up() for one in asked] == [{"miss": 1}, {"miss": 1}, {"foreign": 1}]
        again = gateway(shared_cache_key_file=str(secret))
        await again.ask(data_uri(PHOTO))
        assert again.decodes == 0

    run(scenario)


def test_what_may_not_be_kept_is_not_shared() -> None:
    """An answer under no-store, and a refusal."""

    async def scenario(server: Valkey, gateway: Callable[..., Gateway], clock: VirtualClock) -> None:
        web = Server(lambda _: reply(200, PHOTO, "Cache-Control: no-store"))
        async with await asyncio.start_server(web.serve, "127.0.0.1") as listening:
            web.port = listening.sockets[0].getsockname()[1]
            one = gateway(allowed_hosts=(f"127.0.0.1:{web.port}",))
            await one.ask(web.url())
            with pytest.raises(InvalidRequest):
                await one.ask(data_uri(PHOTO[: len(PHOTO) // 2]))
            await one.written()
            listening.close()

        assert (one.tally.written(), server.ask("DBSIZE")) == ({}, b":0\r\n")

    run(scenario)


def test_a_text_request_never_asks_it() -> None:
    async def scenario(server: Valkey, gateway: Callable[..., Gateway], clock: VirtualClock) -> None:
        one = gateway()
        await one.access.prepare([], 30)
        assert one.tally.looked_up() == {}
        assert server.ask("INFO", "clients").count(b"connected_clients:1\r\n") == 1

    run(scenario)


def test_requests_go_on_when_the_store_dies_and_when_it_hangs() -> None:
    """kill -9 and SIGSTOP in the middle of them; each picture is the same as ever, and it is used again after."""

    async def scenario(server: Valkey, gateway: Callable[..., Gateway], clock: VirtualClock) -> None:
        one = gateway(cache_mb=0)
        picture = await one.ask(data_uri(ARROW))
        await one.written()
        assert await one.ask(data_uri(ARROW)) == picture
        assert one.decodes == 1

        server.kill()
        assert [await one.ask(data_uri(ARROW)) for _ in range(6)] == [picture] * 6
        assert one.decodes == 7
        assert not one.access.shared_up
        assert one.tally.looked_up()["skipped"] >= 3  # a write may have been one of the three failures

        server.start()
        for decodes in (8, 8):
            clock.advance(RULE.most_hold_s)
            assert await one.ask(data_uri(ARROW)) == picture
            await one.written()
            assert (one.decodes, one.access.shared_up) == (decodes, True)

        one.shared._limit_s = 0.02
        with server.frozen():
            assert [await one.ask(data_uri(ARROW)) for _ in range(6)] == [picture] * 6
        assert one.decodes == 14
        assert not one.access.shared_up

    run(scenario)


def test_a_poisoned_store_changes_no_picture() -> None:
    """Every value overwritten with another image's, then with noise: each is prepared anew."""

    async def scenario(server: Valkey, gateway: Callable[..., Gateway], clock: VirtualClock) -> None:
        one, two = gateway(), gateway(cache_mb=0)
        pictures_made = [await one.ask(data_uri(PHOTO)), await one.ask(data_uri(ARROW))]
        await one.written()
        script = "local k=redis.call('KEYS','*') local a=redis.call('GET',k[1]) {} return #k"
        swap = "redis.call('SET',k[1],redis.call('GET',k[2])) redis.call('SET',k[2],a)"
        noise = "for _,n in ipairs(k) do redis.call('SET',n,string.rep('x',99)) end"
        for poison in (swap, noise):
            assert server.ask("EVAL", script.format(poison), "0") == b":2\r\n"
            assert [await two.ask(data_uri(PHOTO)), await two.ask(data_uri(ARROW))] == pictures_made
            await two.written()

        assert two.tally.looked_up() == {"foreign": 4}

    run(scenario)


def test_two_whole_gateways_share_and_show_it(tmp_path: Path) -> None:
    """Through chat completions: the second engine gets the first gateway's picture; metrics tell."""
    parts = [{"type": "image_url", "image_url": {"url": data_uri(PHOTO)}}, {"type": "text", "text": "what?"}]
    about = chat(messages=[{"role": "user", "content": parts}])

    async def main() -> None:
        with Valkey() as server:
            settings = {"access": {"shared_cache_url": server.url, "shared_cache_timeout_ms": 1000}}
            sent = []
            for number, seen in enumerate(("miss", "hit")):
                async with rig(tmp_path / str(number), settings) as made:
                    assert (await made.ask(about)).status == 200
                    call = made.legs["prefill-0"].calls[-1].body
                    sent.append(call["messages"][0]["content"][0]["image_url"]["url"])
                    made.gateway.status.metrics()
                    assert made.metric("toolkit_image_cache_total", tier="shared", result=seen) == 1
                    assert made.metric("toolkit_shared_cache_up") == 1
                # closing wrote what waited
            assert sent[0] == sent[1]

    asyncio.run(main())


def test_a_secret_that_cannot_be_used_is_said_before_anything_starts(tmp_path: Path) -> None:
    from serving.topology import plan

    short = tmp_path / "short"
    short.write_text("  short  \n")
    for path, told in ((tmp_path / "missing", "cannot be read"), (short, "holds 5 bytes")):
        config = load(ServeConfig, None, [f"access.shared_cache_key_file={path}"])
        with pytest.raises(UsageFault, match=told):
            plan(config, dry=True)


def test_a_certificate_that_is_not_there_is_said() -> None:
    limits = AccessConfig(shared_cache_url="rediss://cache.example?ssl_ca_certs=/no/such.pem")
    with pytest.raises(UsageFault, match="certificate file"):
        shared_tier(limits, GRID, VirtualClock(), Tally())


def test_what_the_shared_tier_takes_is_part_of_the_memory_budget() -> None:
    """The rest is split among the others; too little of it is refused with what to change."""
    from serving.access.budget import budget_of

    alone, shared = AccessConfig(), AccessConfig(shared_cache_url="redis://cache")
    set_aside = 14 * shared.shared_cache_max_entry_bytes
    assert shared.set_aside_bytes - alone.set_aside_bytes == set_aside
    assert budget_of(alone).heavy - budget_of(shared).heavy == 7 * (set_aside // 16)
    with pytest.raises(UsageFault, match="shared_cache_max_entry_bytes"):
        load(
            ServeConfig,
            None,
            ["access.shared_cache_url=redis://cache", "access.shared_cache_max_entry_bytes=60000000"],
        )
