"""Name resolution without threads: a name server that keeps silent holds up nobody but who asked for that name.

getaddrinfo blocks a thread for up to ten seconds and longer, whatever the caller's deadline; eight such names
would stop every download. c-ares waits on sockets, by the same resolv.conf and hosts file.
"""

import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

import aiodns

from serving.access.hosts import Address

Resolver = Callable[[str, int], Awaitable[list[Address]]]
"""Every address of a name, for a port. Raises OSError where there is none."""

_TRY_S = 2.0
_TRIES = 2


class CaresResolver:
    """`servers`: name servers as address or address:port, instead of the system's. Used from one event loop."""

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._dns = aiodns.DNSResolver(nameservers=servers or None, timeout=_TRY_S, tries=_TRIES)

    async def __call__(self, host: str, port: int) -> list[Address]:
        try:
            found = await self._dns.getaddrinfo(host, port=port, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as error:
            raise OSError("the name does not resolve") from error
        return [ip_address(node.addr[0].decode()) for node in found.nodes]

    async def close(self) -> None:
        """Gives up every question. Idempotent."""
        await self._dns.close()
