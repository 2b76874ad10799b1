"""Bodies that strangers send: in time, within the cap, as they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.serving.access.test_guard import one_site
from tests.serving.access.web import PUBLIC, Bench, Internet, Server, listening, on_internet, reply


@asynccontextmanager
async def writing(pieces: AsyncIterator[bytes], sent: list[int]) -> AsyncIterator[Server]:
    """A server that answers with a head and then these pieces, for as long as somebody reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            async for piece in pieces:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                sent.append(len(piece))
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = Server(lambda _: None)
    server.serve = serve  # type: ignore[method-assign]
    async with listening([server]):
        yield server


def test_a_drip_does_not_extend_the_time() -> None:
    """One deadline for the whole download: bytes that keep coming do not move it."""
    sent: list[int] = []
    internet = Internet({"slow.example": [[PUBLIC]]})

    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield bytes(200)
            await asyncio.sleep(0.01)

    async def scenario(bench: Bench) -> None:
        async with writing(drip(), sent) as server:
            internet.at[PUBLIC, 80] = server
            error = await bench.refused("http://slow.example/", "image_fetch_failed")
            assert "took longer than 0.4 s" in error.message

    on_internet(internet, scenario, url_timeout_s=0.4)

    assert len(sent) > 3


def test_a_body_without_end_is_cut_at_the_limit() -> None:
    """What has not been announced is counted while it comes; the rest is not read."""
    sent: list[int] = []
    internet = Internet({"large.example": [[PUBLIC]]})

    async def flood() -> AsyncIterator[bytes]:
        while True:
            yield bytes(50_000)

    async def scenario(bench: Bench) -> None:
        async with writing(flood(), sent) as server:
            internet.at[PUBLIC, 80] = server
            await bench.refused("http://large.example/", "image_too_large")

    tally = on_internet(internet, scenario, max_image_bytes=1_000_000)

    assert 500_000 < tally.counts["toolkit_image_download_bytes_total"] <= 1_000_000
    assert sum(sent) < 8_000_000  # the rest is in the sockets' buffers


def test_a_body_in_crumbs_is_refused() -> None:
    """A chunk per byte would cost the event loop a thousand times what its bytes are worth."""
    internet = one_site(
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n"
    )

    async def scenario(bench: Bench) -> None:
        error = await bench.refused("http://photos.example/", "image_fetch_failed")
        assert "crumbs" in error.message

    tally = on_internet(internet, scenario)

    assert tally.counts["toolkit_image_download_bytes_total"] < 300


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "identity, gzip", "x-unknown"])
def test_an_encoded_body_is_refused_unread(encoding: str) -> None:
    """None was accepted, so a small body cannot become a large one."""
    internet = one_site(reply(200, b"\x1f\x8b" + bytes(1000), f"Content-Encoding: {encoding}"))

    async def scenario(bench: Bench) -> None:
        await bench.refused("http://photos.example/", "image_fetch_failed")

    tally = on_internet(internet, scenario)

    assert internet.at[PUBLIC, 80].header("accept-encoding") == ["identity"]
    assert "toolkit_image_download_bytes_total" not in tally.counts
