"""Images by URL take no more memory than there is for them; what finds no room stays with its host."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from serving.access.budget import budget_of
from serving.access.fetched import Fetched
from serving.config import AccessConfig
from tests.serving.access.test_bodies import writing
from tests.serving.access.web import OTHER, PUBLIC, Bench, Internet, Server, on_internet, reply
from toolkit.core.errors import ToolkitError

HELD = "toolkit_image_download_held_bytes"
SIZE = 1_000_000
LIMITS = {"memory_mb": 193, "cache_mb": 1, "max_image_bytes": 10_000_000}  # leaves room for 12 of SIZE


def test_room_for_downloads_is_part_of_the_budget() -> None:
    """What these tests reckon with."""
    assert budget_of(AccessConfig(**LIMITS)).downloads == 12_000_000


def site(answer: bytes) -> Internet:
    return Internet({"photos.example": [[PUBLIC]]}, {(PUBLIC, 80): Server(lambda _: answer)})


async def settled(bench: Bench) -> float:
    """What is held, once all who let go have."""
    for _ in range(5):
        await asyncio.sleep(0)
    return bench.tally.gauges[HELD]


def test_a_file_keeps_its_room_until_nobody_holds_it() -> None:
    """Also while it waits to be decoded; an error leaves nothing."""
    internet = site(reply(200, bytes(SIZE)))

    async def scenario(bench: Bench) -> None:
        file: Fetched | None = await bench.fetcher.fetch("http://photos.example/")
        other = file
        assert await settled(bench) == SIZE
        file = None
        assert await settled(bench) == SIZE
        other = None
        assert (file, other) == (None, None)
        assert await settled(bench) == 0

        internet.at[PUBLIC, 80].answer = lambda _: reply(200, bytes(SIZE))[: SIZE // 2]
        task = asyncio.create_task(bench.data("http://photos.example/"))
        while bench.tally.gauges[HELD] != SIZE:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await settled(bench) == 0

    on_internet(internet, scenario, **LIMITS)


@pytest.mark.parametrize("answer", [reply(200, bytes(SIZE)), None])
def test_many_at_once_keep_within_the_room(answer: bytes | None) -> None:
    """Of thirty as many are in memory as fit; the others are read when those are gone. Announced or not."""
    chunked = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
        SIZE,
        bytes(SIZE),
    )
    internet = site(answer or chunked)

    async def one(bench: Bench, number: int) -> int:
        file = await bench.fetcher.fetch(f"http://photos.example/{number}")
        await asyncio.sleep(0.001)  # as if it were decoded
        return len(file.data or b"")

    async def scenario(bench: Bench) -> None:
        sizes = await asyncio.gather(*(one(bench, number) for number in range(30)))
        assert sizes == [SIZE] * 30
        assert await settled(bench) == 0

    tally = on_internet(internet, scenario, **LIMITS)

    assert tally.greatest[HELD] <= 12_000_000
    assert tally.greatest[HELD] >= 4_000_000


def test_who_finds_no_room_in_time_is_told_so() -> None:
    """429, and the host is not blamed; with room again it goes on over the same host."""
    internet = site(reply(200, bytes(9_000_000)))

    async def scenario(bench: Bench) -> None:
        held = await bench.fetcher.fetch("http://photos.example/a")
        for _ in range(2):
            error = await bench.refused("http://photos.example/b", "queue_full")
            assert "memory" in error.message
        assert len(held.data or b"") == 9_000_000
        del held
        assert len(await bench.data("http://photos.example/b") or b"") == 9_000_000

    tally = on_internet(internet, scenario, url_timeout_s=1.0, host_failures=2, **LIMITS)

    assert "toolkit_image_host_breakers_total" not in tally.counts


async def megabytes() -> AsyncIterator[bytes]:
    for _ in range(9):
        yield bytes(SIZE)


def test_a_body_of_unknown_length_does_not_wait_with_what_it_has() -> None:
    """Two that grow would wait for one another: the one that finds no room for the largest is refused at once."""
    sent: list[int] = []

    async def scenario(bench: Bench) -> None:
        held = await bench.fetcher.fetch("http://photos.example/")
        async with writing(megabytes(), sent) as server:
            internet.at[OTHER, 80] = server
            error = await bench.refused("http://other.example/", "queue_full")
            assert "memory" in error.message
        assert held.data is not None

    internet = site(reply(200, bytes(4 * SIZE)))
    internet.names["other.example"] = [[OTHER]]
    on_internet(internet, scenario, **LIMITS)

    assert sum(sent) >= 4 * SIZE


def test_a_failed_download_gives_its_room_back_at_once() -> None:
    """Not when the traceback of its error is collected."""
    internet = site(b"HTTP/1.1 200 X\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\nabc")

    async def scenario(bench: Bench) -> None:
        gc.disable()
        try:
            with pytest.raises(ToolkitError) as caught:
                await bench.fetcher.fetch("http://photos.example/")
            assert bench.tally.gauges[HELD] == 0
            assert bench.tally.greatest[HELD] == SIZE
            assert caught.value.__traceback__ is not None
        finally:
            gc.enable()

    on_internet(internet, scenario, **LIMITS)
