"""Names are resolved over UDP, from a name server of this test; a silent one holds up nobody else."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest
import uvloop

from serving.access.resolver import CaresResolver
from tests.serving.access.web import PUBLIC, Bench, Internet, Server, on_internet, redirect, reply

A, AAAA = 1, 28
NAME_ERROR = 3


class NameServer(asyncio.DatagramProtocol):
    """names: for each the addresses to answer, one list after the other; None: silence. Answers may not be kept."""

    def __init__(self, names: dict[str, list[list[str] | None]]) -> None:
        self.names = names
        self.asked: list[tuple[str, int]] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, sender: tuple[str, int]) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        name, (kind,) = ".".join(labels).lower(), struct.unpack_from(">H", data, at + 1)
        turn = self.asked.count((name, kind))
        self.asked.append((name, kind))
        answers = self.names.get(name, [[]])
        addresses = answers[min(turn, len(answers) - 1)]
        if addresses is None:
            return
        version = 4 if kind == A else 6
        packed = [ip.packed for ip in map(ip_address, addresses) if ip.version == version]
        status = 0 if name in self.names else NAME_ERROR
        head = data[:2] + struct.pack(">HHHHH", 0x8180 | status, 1, len(packed), 0, 0)
        records = [b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(value)) + value for value in packed]
        self.transport.sendto(head + data[12 : at + 5] + b"".join(records), sender)


@asynccontextmanager
async def resolving(
    names: dict[str, list[list[str] | None]],
) -> AsyncIterator[tuple[NameServer, CaresResolver]]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: NameServer(names), local_addr=("127.0.0.1", 0)
    )
    resolve = CaresResolver([f"127.0.0.1:{transport.get_extra_info('sockname')[1]}"])
    try:
        yield server, resolve
    finally:
        await resolve.close()
        await resolve.close()
        transport.close()


def test_every_address_of_both_families() -> None:
    """None is left out, since one that is private decides."""

    async def main() -> None:
        async with resolving({"many.example": [["8.8.8.8", "10.0.0.1", "2606:4700::1", "fd00::1"]]}) as (
            _,
            resolve,
        ):
            found = {str(address) for address in await resolve("many.example", 80)}
        assert found == {"8.8.8.8", "10.0.0.1", "2606:4700::1", "fd00::1"}

    asyncio.run(main())


@pytest.mark.parametrize("name", ["nowhere.example", "empty.example", "a..example", "x" * 64 + ".example"])
def test_a_name_without_an_address(name: str) -> None:
    """OSError, as the system's resolver has it."""

    async def main() -> None:
        async with resolving({"empty.example": [[]]}) as (_, resolve):
            with pytest.raises(OSError, match="does not resolve"):
                await resolve(name, 80)

    asyncio.run(main())


def test_a_silent_name_server_holds_up_nobody_else() -> None:
    """A hundred names that are never answered, then one that is; closing gives them up."""
    silent: dict[str, list[list[str] | None]] = {f"s{number}.example": [None] for number in range(100)}

    async def main() -> None:
        async with resolving({**silent, "quick.example": [["8.8.8.8"]]}) as (server, resolve):
            stuck = [asyncio.create_task(resolve(name, 80)) for name in silent]
            while len(server.asked) < 100:
                await asyncio.sleep(0.001)
            assert [str(address) for address in await resolve("quick.example", 80)] == ["8.8.8.8"]
            assert not any(task.done() for task in stuck)
            stuck.pop().cancel()
            await resolve.close()
            assert all(
                isinstance(end, OSError) for end in await asyncio.gather(*stuck, return_exceptions=True)
            )

    asyncio.run(main())


def test_rebinding_over_the_wire() -> None:
    """A name server that says public, then loopback: one question for one connection, its answer dialled."""
    internet = Internet()
    internet.at[PUBLIC, 80] = Server(lambda _: reply(200, b"picture", "Connection: close"))

    async def main(bench: Bench) -> None:
        async with resolving({"rebind.example": [[PUBLIC], ["127.0.0.1"]]}) as (server, resolve):
            bench.fetcher._resolve = resolve
            assert await bench.data("http://rebind.example/") == b"picture"
            assert server.asked.count(("rebind.example", A)) == 1
            await bench.refused("http://rebind.example/", "image_url_blocked")

    on_internet(internet, main)

    assert internet.dialled == [(PUBLIC, 80)]


def test_all_of_it_on_the_gateways_event_loop() -> None:
    """uvloop: a name over the wire, TLS, a redirect, a connection that is kept and closed, a name that is private."""
    internet = Internet({"photos.example": []}, tls=True)
    internet.at[PUBLIC, 443] = Server(
        lambda path: (
            reply(200, b"picture")
            if path == "/b"
            else redirect("/b" if path == "/a" else "https://inside.example/")
        )
    )
    names: dict[str, list[list[str] | None]] = {
        "photos.example": [[PUBLIC]],
        "inside.example": [["10.0.0.1"]],
    }

    async def scenario(bench: Bench) -> None:
        async with resolving(names) as (_, resolve):
            bench.fetcher._resolve = resolve
            assert await bench.data("https://photos.example/a") == b"picture"
            await bench.refused("https://photos.example/c", "image_url_blocked")

    on_internet(internet, scenario, run=uvloop.run)

    assert internet.dialled == [(PUBLIC, 443)]
    assert internet.at[PUBLIC, 443].names == ["photos.example"]


def test_a_gateway_resolves_by_itself() -> None:
    """Without a resolver from outside: the system's name servers and hosts file, through c-ares."""

    async def main() -> None:
        resolve = CaresResolver()
        assert {str(address) for address in await resolve("localhost", 80)} <= {"127.0.0.1", "::1"}
        await resolve.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", None)
        asyncio.run(main())
