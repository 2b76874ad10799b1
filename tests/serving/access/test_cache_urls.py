"""An image by URL that comes again: asked for as the server wants it, decoded once."""

from collections.abc import Callable

import pytest

from tests.serving.access.test_cache import ARROW, PHOTO, Bench, run
from tests.serving.access.test_data_uri import data_uri
from tests.serving.access.web import reply
from toolkit.core.errors import InvalidRequest


def not_modified(*headers: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 304 Not Modified", *headers]).encode() + b"\r\n\r\n"


def scripted(*answers: bytes) -> Callable[[str], bytes]:
    """One after the other."""
    left = list(answers)
    return lambda _: left.pop(0)


def asked_if(bench: Bench) -> list[str]:
    """The If-None-Match of each request that the server got."""
    return [
        next((line[15:] for line in head.split("\r\n") if line.lower().startswith("if-none-match: ")), "")
        for head in bench.server.requests
    ]


def test_a_fresh_image_is_not_asked_for() -> None:
    """Until its max-age is over; the fragment is no part of the URL."""

    async def scenario(bench: Bench) -> None:
        first = await bench.ask(bench.server.url())
        bench.clock.advance(59.0)
        assert await bench.ask(bench.server.url("/#part")) == first
        assert len(bench.server.requests) == 1
        bench.clock.advance(1.0)
        await bench.ask(bench.server.url())

        assert len(bench.server.requests) == 2
        assert bench.events == {"url downloaded": 2, "url fresh": 1, "miss": 1, "hit": 2}

    run(scenario, lambda _: reply(200, PHOTO, "Cache-Control: max-age=60"))


def test_an_etag_is_asked_about() -> None:
    """304: no bytes, no decode, and new terms; 200: another image."""

    async def scenario(bench: Bench) -> None:
        url = bench.server.url()
        first = await bench.ask(url)
        assert await bench.ask(url) == first
        assert await bench.ask(url) == first
        assert await bench.ask(url) != first

        assert asked_if(bench) == ["", '"one"', '"one"']
        assert bench.events["url unchanged"] == 1
        assert bench.events["url fresh"] == 1
        assert bench.pool.decodes == 2
        assert bench.server.connections == 1

    async def later(bench: Bench) -> None:
        inner = bench.ask

        async def ask(*urls: str, within_s: float = 30.0) -> list[str]:
            bench.clock.advance(6.0)
            return await inner(*urls, within_s=within_s)

        bench.ask = ask  # type: ignore[method-assign]
        await scenario(bench)

    answers = scripted(
        reply(200, PHOTO, 'ETag: "one"'),
        not_modified("Cache-Control: max-age=10"),
        reply(200, ARROW, 'ETag: "two"'),
    )
    run(later, answers)


@pytest.mark.parametrize("forbidden", ["no-store", "private, max-age=60"])
def test_what_may_not_be_stored_is_not(forbidden: str) -> None:
    """Neither the URL nor the picture outlasts the request; sent as data it may."""

    async def scenario(bench: Bench) -> None:
        await bench.ask(bench.server.url())
        assert (bench.access.held_images, bench.access.held_bytes) == (0, 0)
        await bench.ask(bench.server.url())
        assert (bench.pool.decodes, len(bench.server.requests)) == (2, 2)
        await bench.ask(data_uri(PHOTO))
        assert bench.access.held_images == 1

    run(scenario, lambda _: reply(200, PHOTO, f"Cache-Control: {forbidden}", 'ETag: "one"'))


def test_a_304_nobody_asked_for_is_a_failed_download() -> None:
    """A server cannot make us take one image for another."""

    async def scenario(bench: Bench) -> None:
        await bench.ask(bench.server.url("/a"))
        with pytest.raises(InvalidRequest, match="answered 304"):
            await bench.ask(bench.server.url("/b"))

    run(scenario, scripted(reply(200, PHOTO, "Cache-Control: max-age=60"), not_modified('ETag: "one"')))


def test_a_page_whose_picture_made_room_is_downloaded_whole() -> None:
    """A conditional request would bring nothing to decode."""
    wide = {f"/{step}": PHOTO + bytes([step]) for step in range(3)}

    async def scenario(bench: Bench) -> None:
        for path in wide:
            await bench.ask(bench.server.url(path))
        assert bench.access.held_images == 1
        await bench.ask(bench.server.url("/0"))

        assert asked_if(bench) == [""] * 4

    run(scenario, lambda path: reply(200, wide[path], 'ETag: "one"'), cache_mb=1, handover="png")


def test_redirects_are_followed_anew_and_checked_each_time() -> None:
    """Only the image at the end is remembered, so where a URL leads can change."""
    answers = scripted(
        reply(302, b"", "Location: /image"),
        reply(200, PHOTO, "Cache-Control: max-age=60"),
        reply(302, b"", "Location: /image"),
        reply(302, b"", "Location: http://10.0.0.1/"),
    )

    async def scenario(bench: Bench) -> None:
        first = await bench.ask(bench.server.url())
        assert await bench.ask(bench.server.url()) == first
        assert bench.pool.decodes == 1
        with pytest.raises(InvalidRequest) as caught:
            await bench.ask(bench.server.url())
        assert caught.value.code.code == "image_url_blocked"

    run(scenario, answers)


def test_failed_downloads_are_tried_again() -> None:
    """A server that was down a moment ago may be up."""

    async def scenario(bench: Bench) -> None:
        with pytest.raises(InvalidRequest, match="answered 500"):
            await bench.ask(bench.server.url())
        assert len(await bench.ask(bench.server.url())) == 1

    run(scenario, scripted(reply(500), reply(200, ARROW)))
