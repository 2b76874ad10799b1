"""Connections for strangers' URLs: some only reach public addresses, some the hosts that the operator allowed.

httpx-secure guards the connection: it validates the address that is dialled, so a name cannot answer differently
the second time. In front of it stands our own resolver, for three things it leaves open: it picks an address by
opening a TCP connection, to private ones too; it asks about one of a name's addresses, not all; and it follows
`is_global`, which passes multicast and 6to4.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Any

import httpcore
import httpx
from httpx_secure import SSRFProtectionError, httpx_ssrf_protection

from serving.access.heads import HeadBound
from serving.access.hosts import Address
from serving.access.resolver import Resolver

KEEPALIVE_S = 30.0
"""How long an idle connection is kept."""

_MOST_DIALLED = 4  # of a name's addresses; all are checked


class BlockedError(Exception):
    """The URL leads, or would lead, to an address that is not public. Says nothing about which."""


class UnresolvedError(httpcore.ConnectError):
    """The URL's host has no address, or none that is told in time."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Resolves once, refuses a name with any address that may not be reached, and dials the addresses it checked."""

    def __init__(
        self, inner: httpcore.AsyncNetworkBackend, resolve: Resolver, may_reach: Callable[[Address], bool]
    ) -> None:
        self._inner = inner
        self._resolve = resolve
        self._may_reach = may_reach
        self._left_behind: set[asyncio.Task[None]] = set()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        if not addresses or not all(self._may_reach(address) for address in addresses):
            raise BlockedError
        dialled = by_turns(addresses)[:_MOST_DIALLED]
        for left, address in zip(range(len(dialled) - 1, -1, -1), dialled, strict=True):
            share_s = None if timeout is None else timeout / (left + 1)
            try:
                return HeadBound(await self._dial(str(address), port, share_s, local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if left == 0:
                    raise
        raise AssertionError("the last address returned or raised")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    async def _dial(self, *where: Any) -> httpcore.AsyncNetworkStream:
        """A connection. Whoever is cancelled meanwhile leaves it to be closed when it is there, or has timed out: anyio
        4.16 may forget one that comes in that very moment, and its socket stays open until it is collected."""
        dialling = asyncio.ensure_future(self._inner.connect_tcp(*where))
        try:
            return await asyncio.shield(dialling)
        except asyncio.CancelledError:
            task = asyncio.get_running_loop().create_task(_close(dialling))
            self._left_behind.add(task)
            task.add_done_callback(self._left_behind.discard)
            raise

    async def _addresses(self, host: str, port: int) -> list[Address]:
        try:
            return [ip_address(host)]
        except ValueError:
            pass
        try:
            return await self._resolve(host, port)
        except OSError as error:
            raise UnresolvedError("the name does not resolve") from error


async def _close(dialling: "asyncio.Future[httpcore.AsyncNetworkStream]") -> None:
    with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout, SSRFProtectionError):
        await (await dialling).aclose()


def by_turns(addresses: Sequence[Address]) -> list[Address]:
    """Both families alternating, the first one's first: a host without IPv6 must not spend all its tries on it."""
    first = [address for address in addresses if address.version == addresses[0].version]
    other = [address for address in addresses if address.version != addresses[0].version]
    shared = min(len(first), len(other))
    pairs = zip(first[:shared], other[:shared], strict=True)
    return [address for pair in pairs for address in pair] + first[shared:] + other[shared:]


def trusted(
    tls: ssl.SSLContext, most: int, resolve: Resolver, may_reach: Callable[[Address], bool]
) -> httpx.AsyncHTTPTransport:
    """Connections for hosts the operator named, at most `most` of them idle.

    A transport is all of httpx that is needed: no proxies, cookies, redirects or timeouts but the caller's own.
    """
    return _resolving(_transport(_client(tls, most)), resolve, may_reach)


def public(
    tls: ssl.SSLContext, most: int, resolve: Resolver, may_reach: Callable[[Address], bool]
) -> httpx.AsyncHTTPTransport:
    """The same; raises BlockedError, or httpx_secure.SSRFProtectionError, before it reaches a private address."""
    return _resolving(_transport(httpx_ssrf_protection(_client(tls, most))), resolve, may_reach)


def _client(tls: ssl.SSLContext, most: int) -> httpx.AsyncClient:
    # The caller bounds what runs at once. With max_connections the pool would queue, and a request that is given
    # up at the wrong moment takes its place in such a pool for good (httpcore 1.0.9).
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=most, keepalive_expiry=KEEPALIVE_S)
    return httpx.AsyncClient(verify=tls, limits=limits, trust_env=False)


def _transport(client: httpx.AsyncClient) -> httpx.AsyncHTTPTransport:
    transport = client._transport
    assert isinstance(transport, httpx.AsyncHTTPTransport)
    return transport


def _resolving(
    transport: httpx.AsyncHTTPTransport, resolve: Resolver, may_reach: Callable[[Address], bool]
) -> httpx.AsyncHTTPTransport:
    # httpx has no argument for the network backend; httpx-secure pins the versions whose pool this is.
    pool = transport._pool
    pool._network_backend = GuardedBackend(pool._network_backend, resolve, may_reach)
    return transport
