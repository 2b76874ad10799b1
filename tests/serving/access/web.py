"""A little internet on loopback: servers at public addresses, a name server, and a record of all that is dialled.

The guard itself is left as it is. Where its connection backend asks for a TCP connection to an address, a route leads
to a listener of this test; an address without one refuses. So whatever is dialled, by whatever path, is seen.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import anyio
import pytest
import trustme

from serving.access.fetch import Fetcher
from serving.access.workers import DecodePool
from serving.config import AccessConfig
from tests.serving.access.tally import Tally
from toolkit.core.clock import Clock
from toolkit.core.errors import ToolkitError

Answer = Callable[[str], bytes | None]
Address = IPv4Address | IPv6Address

PUBLIC, OTHER = "93.184.215.14", "151.101.1.140"


def reply(status: int = 200, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(location: str, status: int = 302) -> bytes:
    return reply(status, b"", f"Location: {location}")


@dataclass
class Server:
    """A loopback server: `answer` maps a path to raw bytes, None for silence. names: the SNI of each connection."""

    answer: Answer
    port: int = 0
    connections: int = 0
    open: int = 0
    requests: list[str] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests.append(head.decode())
                answer = self.answer(head.split()[1].decode())
                if answer is None:
                    await asyncio.sleep(60)
                else:
                    writer.write(answer)
                    await writer.drain()
                    if b"Connection: close" in answer:
                        break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def header(self, name: str) -> list[str]:
        """This header of every request."""
        lines = [line.partition(": ") for head in self.requests for line in head.split("\r\n")]
        return [value for key, _, value in lines if key.lower() == name]


async def nowhere(host: str, port: int) -> list[Address]:
    raise AssertionError(f"{host} was looked up")


@dataclass
class Internet:
    """names: what the name server answers, in turn, the last answer for ever. at: servers by address and port.
    silent: addresses where nobody says yes or no."""

    names: dict[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    at: dict[tuple[str, int], Server] = field(default_factory=dict)
    tls: bool = False
    silent: set[str] = field(default_factory=set)
    looked_up: list[str] = field(default_factory=list)
    dialled: list[tuple[str, int]] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> list[Address]:
        if host not in self.names:
            raise OSError("no such name at 10.9.8.7")
        answers = self.names[host]
        answer = answers[min(self.looked_up.count(host), len(answers) - 1)]
        self.looked_up.append(host)
        return [ip_address(address) for address in answer]

    @contextmanager
    def routed(self) -> Iterator[None]:
        connect = anyio.connect_tcp

        async def connect_tcp(remote_host: str, remote_port: int, **options: Any) -> Any:
            self.dialled.append((remote_host, remote_port))
            if remote_host in self.silent:
                await asyncio.sleep(60)
            server = self.at.get((remote_host, remote_port))
            if server is None:
                raise ConnectionRefusedError(f"{remote_host} refuses")
            return await connect("127.0.0.1", server.port, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(anyio, "connect_tcp", connect_tcp)
            yield


@dataclass
class Bench:
    """A fetcher on a little internet."""

    fetcher: Fetcher
    internet: Internet
    tally: Tally

    async def data(self, url: str) -> bytes | None:
        return (await self.fetcher.fetch(url)).data

    async def refused(self, url: str, code: str) -> ToolkitError:
        """The error, which must have this code."""
        with pytest.raises(ToolkitError) as caught:
            await self.fetcher.fetch(url)
        assert caught.value.code.code == code, caught.value.message
        return caught.value


@asynccontextmanager
async def listening(servers: Sequence[Server], tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """The servers, on ports of their own."""

    async with AsyncExitStack() as stack:
        for server in servers:
            if tls is not None:
                tls.sni_callback = _told(server)
            await stack.enter_async_context(_listening(server, tls))
        yield


@asynccontextmanager
async def _listening(server: Server, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
    """Closes every connection at the end: one that was accepted in the last moment has no task yet that would."""
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        tasks.append(asyncio.get_running_loop().create_task(server.serve(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", ssl=tls) as listener:
        server.port = listener.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            listener.close()
            for _ in range(3):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            for writer in writers:
                writer.close()
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    await writer.wait_closed()
            await _all_closed(listener)
    assert [end for end in ends if isinstance(end, Exception)] == []


async def _all_closed(listener: asyncio.Server) -> None:
    """Handshakes that were broken off close by themselves, a little later; asyncio counts what is open, uvloop not."""
    for _ in range(400):
        if not getattr(listener, "_active_count", 0):
            return
        await asyncio.sleep(0.005)
    raise AssertionError("a server's connection was left open")


def _told(server: Server) -> Callable[..., None]:
    return lambda _socket, name, _context: server.names.append(name)


def on_internet(
    internet: Internet,
    scenario: Callable[[Bench], Awaitable[None]],
    clock: Clock | None = None,
    resolve: Any = None,
    run: Callable[[Any], None] = asyncio.run,
    **config: Any,
) -> Tally:
    """Run the scenario with a real guard that allows no private host. tls: port 443 has a CA of the test."""
    tally = Tally()

    async def main() -> None:
        trusting = serving = None
        if internet.tls:
            authority = trustme.CA()
            trusting, serving = (
                ssl.create_default_context(),
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
            )
            authority.configure_trust(trusting)
            authority.issue_cert(*internet.names, PUBLIC).configure_cert(serving)
        limits = AccessConfig(**config)
        pool = DecodePool(limits)
        fetcher = Fetcher(limits, pool, clock, resolve or internet.resolve, trusting, tally)
        plain = [server for (_, port), server in internet.at.items() if port != 443]
        secure = [server for (_, port), server in internet.at.items() if port == 443]
        async with listening(plain), listening(secure, serving):
            try:
                with internet.routed():
                    await scenario(Bench(fetcher, internet, tally))
            finally:
                await fetcher.close()
                pool.close()

    run(main())
    return tally


def with_server(
    answer: Answer,
    scenario: Callable[[Fetcher, Server], Awaitable[None]],
    resolve: Any = nowhere,
    **config: Any,
) -> Server:
    """Run the scenario with a fetcher that may reach the server, and nothing else private."""
    server = Server(answer)

    async def main() -> None:
        async with listening([server]):
            limits = AccessConfig(allowed_hosts=(f"127.0.0.1:{server.port}",), **config)
            pool = DecodePool(limits)
            fetcher = Fetcher(limits, pool, resolve=resolve)
            try:
                await scenario(fetcher, server)
            finally:
                await fetcher.close()
                pool.close()

    asyncio.run(main())
    return server


def without_server(
    scenario: Callable[[Fetcher], Awaitable[None]], resolve: Any = nowhere, **config: Any
) -> None:
    async def main() -> None:
        limits = AccessConfig(**config)
        pool = DecodePool(limits)
        fetcher = Fetcher(limits, pool, resolve=resolve)
        await scenario(fetcher)
        await fetcher.close()
        pool.close()

    asyncio.run(main())


async def code_of(fetcher: Fetcher, url: str, deadline: float | None = None) -> str:
    with pytest.raises(ToolkitError) as caught:
        await fetcher.fetch(url, deadline)
    return caught.value.code.code
