"""A server cannot own the event loop with what it says before its body."""

import asyncio
import ssl
from typing import Any

import httpcore
import pytest

from serving.access.heads import HeadBound
from tests.serving.access.web import PUBLIC, Bench, Internet, Server, on_internet, reply


class Endless(httpcore.AsyncNetworkStream):
    """Brings as much as it is asked for, for ever."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        self.written = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.reads.append(max_bytes)
        return bytes(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.written += buffer

    async def aclose(self) -> None:
        self.reads.clear()

    async def start_tls(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        return Endless()

    def get_extra_info(self, info: str) -> Any:
        return info


def test_a_head_is_read_in_small_pieces_up_to_a_bound() -> None:
    """Each request begins anew; a body is read as it is asked for; TLS changes nothing."""

    async def main() -> None:
        inner = Endless()
        for stream, read in (
            (HeadBound(inner), inner.reads),
            (await HeadBound(inner).start_tls(ssl.create_default_context()), None),
        ):
            assert isinstance(stream, HeadBound)
            for _ in range(2):
                await stream.write(b"GET")
                for _ in range(8):
                    assert len(await stream.read(65_536)) == 4096
                with pytest.raises(httpcore.RemoteProtocolError):
                    await stream.read(65_536)
            await stream.write(b"GET")
            await stream.read(65_536)
            stream.ended()
            assert [len(await stream.read(65_536)) for _ in range(9)] == [65_536] * 9
            if read is not None:
                assert set(read) == {4096, 65_536}
            assert stream.get_extra_info("socket") == "socket"
            await stream.aclose()
        assert inner.reads == []

    asyncio.run(main())


FLOODS = {
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 40_000,
    "early hints": (b"HTTP/1.1 103 Early\r\n" + b"link: x\r\n" * 20 + b"\r\n") * 5_000,
    "header lines": b"HTTP/1.1 200 X\r\n" + b"a: b\r\n" * 200_000,
    "one long line": b"HTTP/1.1 200 X\r\na: " + b"b" * 1_000_000,
    "empty lines": b"\r\n" * 500_000,
    "a chunk's extension": b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"e" * 1_000_000,
    "trailers": b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    + b"a: b\r\n" * 200_000,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_that_is_no_image_ends_early(flood: str) -> None:
    """It is cut, not read until the deadline."""
    internet = Internet({"photos.example": [[PUBLIC]]}, {(PUBLIC, 80): Server(lambda _: FLOODS[flood])})

    async def scenario(bench: Bench) -> None:
        error = await bench.refused("http://photos.example/", "image_fetch_failed")
        assert error.message == "the download failed."

    on_internet(internet, scenario)


def test_a_redirect_in_crumbs_is_followed_unread() -> None:
    """Its body is nothing to us; the connection is given up for it."""
    crumbs = (
        b"HTTP/1.1 302 X\r\nLocation: /b\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1\r\nx\r\n" * 3000
        + b"0\r\n\r\n"
    )
    server = Server(lambda path: crumbs if path == "/a" else reply(200, b"picture"))
    internet = Internet({"photos.example": [[PUBLIC]]}, {(PUBLIC, 80): server})

    async def scenario(bench: Bench) -> None:
        assert await bench.data("http://photos.example/a") == b"picture"

    on_internet(internet, scenario)

    assert server.connections == 2


def test_large_heads_and_interim_answers_are_taken() -> None:
    """Security policies of 16 kB, and early hints."""
    head = b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" * 3
    internet = Internet({"photos.example": [[PUBLIC]]})
    internet.at[PUBLIC, 80] = Server(
        lambda _: head + reply(200, b"picture" * 9000, "Policy: " + "p" * 16_000)
    )

    async def scenario(bench: Bench) -> None:
        for _ in range(3):
            assert await bench.data("http://photos.example/") == b"picture" * 9000

    on_internet(internet, scenario)

    assert internet.at[PUBLIC, 80].connections == 1
