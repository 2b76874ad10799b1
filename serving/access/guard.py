"""HTTP clients for strangers' URLs: one that only reaches public addresses, one for hosts the operator allowed.

httpx-secure guards the connection: it validates the address that is dialled, so a name cannot answer differently
the second time. In front of it stands our own resolver, for three things it leaves open: it picks an address by
opening a TCP connection, to private ones too; it asks about one of a name's addresses, not all; and it follows
`is_global`, which passes multicast and 6to4.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import IPv4Address, IPv6Address, ip_address

import httpcore
import httpx
from httpx_secure import httpx_ssrf_protection

from serving.access.address import is_public

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Awaitable[list[Address]]]


class BlockedError(Exception):
    """The URL leads, or would lead, to an address that is not public. Says nothing about which."""


class DnsThreads:
    """Name resolution on threads of its own: a slow name server holds up neither the event loop nor decoding."""

    def __init__(self, threads: int = 8) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="access-dns")

    async def __call__(self, host: str, port: int) -> list[Address]:
        """Every address of the name. Raises OSError where there is none."""
        found = await asyncio.get_running_loop().run_in_executor(
            self._executor, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [ip_address(str(entry[4][0])) for entry in found]

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


class _ResolvingBackend(httpcore.AsyncNetworkBackend):
    """Resolves once, refuses a name with any address that is not public, and dials the addresses it checked."""

    def __init__(self, inner: httpcore.AsyncNetworkBackend, resolve: Resolver) -> None:
        self._inner = inner
        self._resolve = resolve

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError("the name does not resolve") from error
        if not addresses or not all(is_public(address) for address in addresses):
            raise BlockedError
        for left, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
            share_s = None if timeout is None else timeout / (left + 1)
            try:
                return await self._inner.connect_tcp(
                    str(address), port, share_s, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if left == 0:
                    raise
        raise AssertionError("the last address returned or raised")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def open_client(tls: ssl.SSLContext, timeout_s: float) -> httpx.AsyncClient:
    """A client without an address guard: for hosts the operator named. No proxies, no cookies, no redirects."""
    nothing_kept = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
    return httpx.AsyncClient(
        verify=tls,
        timeout=httpx.Timeout(timeout_s),
        limits=httpx.Limits(max_connections=128, max_keepalive_connections=32, keepalive_expiry=30.0),
        follow_redirects=False,
        trust_env=False,
        cookies=nothing_kept,
    )


def guarded_client(tls: ssl.SSLContext, timeout_s: float, resolve: Resolver) -> httpx.AsyncClient:
    """A client that raises BlockedError, or httpx_secure.SSRFProtectionError, before it reaches a private address."""
    client = httpx_ssrf_protection(open_client(tls, timeout_s))
    # httpx has no argument for the network backend; httpx-secure pins the versions whose pool this is.
    transport = client._transport
    assert isinstance(transport, httpx.AsyncHTTPTransport)
    pool = transport._pool
    pool._network_backend = _ResolvingBackend(pool._network_backend, resolve)
    return client
