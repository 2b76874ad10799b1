"""Connections are kept between downloads, never past the guard, and not for ever."""

import asyncio
import ssl
from ipaddress import ip_address
from typing import Any

import httpcore
import httpx
import httpx_secure
import pytest

from serving.access import guard
from serving.access.connections import Connections
from serving.access.guard import by_turns
from serving.access.target import UrlRules
from serving.config import AccessConfig
from tests.serving.access.web import (
    OTHER,
    PUBLIC,
    Bench,
    Internet,
    Server,
    listening,
    on_internet,
    redirect,
    reply,
)

PICTURE = reply(200, b"picture")


def test_images_of_one_host_share_a_connection() -> None:
    """One look-up and one dial for several downloads, the redirect among them too."""
    internet = Internet({"photos.example": [[PUBLIC], ["127.0.0.1"]]})
    answers = {"/moved": reply(301, b"<p>over there</p>", "Location: /b"), "/gone": reply(404, b"no")}
    internet.at[PUBLIC, 80] = Server(lambda path: answers.get(path, PICTURE))

    async def scenario(bench: Bench) -> None:
        for path in ("a", "moved", "c"):
            assert await bench.data(f"http://photos.example/{path}") == b"picture"

    on_internet(internet, scenario)

    assert len(internet.at[PUBLIC, 80].requests) == 4
    assert internet.dialled == [(PUBLIC, 80)]
    assert internet.looked_up == ["photos.example"]


def test_a_kept_connection_serves_its_own_name_alone() -> None:
    """Another name, though it stands for the same address, is looked up and checked; the lists hold each time."""
    internet = Internet({"a.example": [[PUBLIC]], "b.example": [["10.0.0.1"]], "c.example": [[PUBLIC]]})
    internet.at[PUBLIC, 80] = Server(
        lambda path: redirect("http://blocked.example/") if path == "/to" else PICTURE
    )

    async def scenario(bench: Bench) -> None:
        assert await bench.data("http://a.example/") == b"picture"
        await bench.refused("http://b.example/", "image_url_blocked")
        assert await bench.data("http://c.example/") == b"picture"
        await bench.refused("http://a.example/to", "image_url_blocked")

    on_internet(internet, scenario, blocked_hosts=("blocked.example",))

    assert internet.looked_up == ["a.example", "b.example", "c.example"]
    assert internet.dialled == [(PUBLIC, 80)] * 2


def test_a_connection_closed_under_our_hands_is_replaced_once() -> None:
    """The server closes a kept one as we ask: asked again on a new one. A fresh one that breaks has failed."""
    server = Server(lambda _: PICTURE)
    asked: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            asked.append(server.connections)
            if server.connections < 3:
                writer.write(PICTURE)
                await reader.readuntil(b"\r\n\r\n")
                asked.append(server.connections)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server.serve = serve  # type: ignore[method-assign]
    internet = Internet({"photos.example": [[PUBLIC]]}, {(PUBLIC, 80): server})

    async def scenario(bench: Bench) -> None:
        assert await bench.data("http://photos.example/a") == b"picture"
        assert await bench.data("http://photos.example/b") == b"picture"
        await bench.refused("http://photos.example/c", "image_fetch_failed")

    on_internet(internet, scenario)

    assert asked == [1, 1, 2, 2, 3]


def test_downloads_that_are_given_up_leave_no_place_taken() -> None:
    """However many are cancelled in the middle of whatever they do, the next one finds a place."""
    internet = Internet({"photos.example": [[PUBLIC]]})
    internet.at[PUBLIC, 80] = Server(lambda path: PICTURE if path == "/" else None)

    async def scenario(bench: Bench) -> None:
        for round_ in range(60):
            task = asyncio.create_task(bench.data("http://photos.example/never"))
            for _ in range(round_ % 20):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await bench.data("http://photos.example/") == b"picture"
        assert {key: value for key, value in bench.tally.gauges.items() if "held" not in key} == {
            "toolkit_image_downloads running": 0,
            "toolkit_image_downloads waiting": 0,
        }

    on_internet(internet, scenario, max_downloads=2, max_downloads_per_host=1)


def test_a_silent_address_leaves_time_for_the_next() -> None:
    """Each address has its share of what is left."""
    internet = Internet(
        {"photos.example": [[OTHER, PUBLIC]]}, {(PUBLIC, 80): Server(lambda _: PICTURE)}, silent={OTHER}
    )

    async def scenario(bench: Bench) -> None:
        assert await bench.data("http://photos.example/") == b"picture"

    on_internet(internet, scenario, url_timeout_s=1.0)

    assert internet.dialled == [(OTHER, 80), (PUBLIC, 80)]


def test_a_connection_that_comes_after_its_caller_has_left_is_closed() -> None:
    """Cancelled while it was being made."""
    closed: list[str] = []

    class Stream(httpcore.AsyncNetworkStream):
        async def aclose(self) -> None:
            closed.append("stream")

    class Slow(httpcore.AsyncNetworkBackend):
        async def connect_tcp(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
            await made.wait()
            return Stream()

    made = asyncio.Event()

    async def main() -> None:
        backend = guard.GuardedBackend(Slow(), Internet({"a.example": [[PUBLIC]]}).resolve, lambda _: True)
        task = asyncio.create_task(backend.connect_tcp("a.example", 80))
        await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() and closed == []
        made.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert closed == ["stream"]

    asyncio.run(main())


def connections(internet: Internet, idle_s: float = 30.0) -> Connections:
    return Connections(UrlRules(AccessConfig()), ssl.create_default_context(), 4, internet.resolve, idle_s)


async def ask(kept: Connections, url: str) -> None:
    target = UrlRules(AccessConfig()).target(url)
    async with kept.of(target) as transport:
        response = await transport.handle_async_request(httpx.Request("GET", target.url))
        assert b"".join([piece async for piece in response.aiter_raw()]) == b"picture"


def test_idle_connections_are_closed() -> None:
    """Without another request coming; one that comes later is served by a new one."""
    server = Server(lambda _: PICTURE)
    internet = Internet({"photos.example": [[PUBLIC]]}, {(PUBLIC, 80): server})

    async def main() -> None:
        kept = connections(internet, idle_s=0.0)
        async with listening([server]):
            with internet.routed():
                await ask(kept, "http://photos.example/")
                assert server.open == 1
                while server.open:
                    await asyncio.sleep(0.001)
                await ask(kept, "http://photos.example/")
                await kept.close()
                await kept.close()

    asyncio.run(main())

    assert server.connections == 2


def test_a_connection_in_use_is_not_idle() -> None:
    """Whoever begins while another one ends keeps all of them."""
    server = Server(lambda _: PICTURE)
    internet = Internet(
        {"a.example": [[PUBLIC]], "b.example": [[OTHER]]}, {(PUBLIC, 80): server, (OTHER, 80): server}
    )

    async def main() -> None:
        kept = connections(internet, idle_s=0.0)
        async with listening([server]):
            with internet.routed():
                async with kept.of(UrlRules(AccessConfig()).target("http://b.example/")):
                    await ask(kept, "http://a.example/")
                    await asyncio.sleep(0.01)
                    await ask(kept, "http://a.example/")
                    assert server.connections == 1
                await kept.close()

    asyncio.run(main())


def test_the_second_guard_holds_alone() -> None:
    """httpx-secure refuses the address even if our own check were blind."""
    internet = Internet({"inside.example": [["127.0.0.1"]]}, {("127.0.0.1", 80): Server(lambda _: PICTURE)})

    async def main() -> None:
        transport = guard.public(ssl.create_default_context(), 4, internet.resolve, lambda _: True)
        with internet.routed(), pytest.raises(httpx_secure.SSRFProtectionError):
            await transport.handle_async_request(httpx.Request("GET", "http://inside.example/"))
        await transport.aclose()

    asyncio.run(main())

    assert internet.dialled == []


def test_families_take_turns() -> None:
    """The first one's first, none lost."""
    one, two, three, four = (
        ip_address(text) for text in ("2606:4700::1", "2606:4700::2", "8.8.8.8", "2606:4700::3")
    )

    assert by_turns([one, two, three, four]) == [one, three, two, four]
    assert by_turns([three]) == [three]
    assert by_turns([three, one]) == [three, one]
