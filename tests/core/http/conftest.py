"""Peers for the client's tests: small servers on 127.0.0.1 that do exactly what a test writes down."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

Handler = Callable[["Wire"], Awaitable[None]]


class Wire:
    """The peer's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """The next request, head and body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                head += await self.reader.readexactly(int(line.partition(b":")[2]))
        return head

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def finish_now(self) -> None:
        """Send FIN this instant, without a turn of the event loop."""
        descriptor = os.dup(self.writer.get_extra_info("socket").fileno())
        with socket.socket(fileno=descriptor) as same:
            same.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with RST."""
        descriptor = os.dup(self.writer.get_extra_info("socket").fileno())
        with socket.socket(fileno=descriptor) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client has closed."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65_536):
                pass


class Peer:
    """A server whose every connection runs `handler`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.url = ""
        self.wires: list[Wire] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        wire = Wire(reader, writer)
        self.wires.append(wire)
        try:
            # A client that aborts, or the test's end, ends the handler.
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await self._handler(wire)
        finally:
            self.tasks.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()


@contextlib.asynccontextmanager
async def serving(
    handler: Handler, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Peer]:
    peer = Peer(handler)
    server = await asyncio.start_server(peer.serve, host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    peer.url = f"{'https' if tls else 'http'}://{shown}:{port}"
    try:
        yield peer
    finally:
        server.close()
        for task in list(peer.tasks):
            task.cancel()
        if peer.tasks:
            await asyncio.wait(list(peer.tasks), timeout=5)
        for wire in peer.wires:
            wire.writer.transport.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.fixture
def serve() -> Callable[..., contextlib.AbstractAsyncContextManager[Peer]]:
    """`async with serve(handler) as peer`: a peer that does what `handler(wire)` says on each connection."""
    return serving


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a coroutine to its end, on either event loop, within a bound."""

    def bounded(coroutine: Coroutine[Any, Any, None]) -> None:
        async def main() -> None:
            async with asyncio.timeout(20):
                await coroutine

        (asyncio.run if request.param == "asyncio" else uvloop.run)(main())

    return bounded
