"""The connections of all downloads: made when one begins, closed when none has run for a while."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from serving.access.guard import KEEPALIVE_S, public, trusted
from serving.access.resolver import CaresResolver, Resolver
from serving.access.target import Target, UrlRules


class Connections:
    """Those to public hosts, those to trusted ones, and the resolver of both. Used from one event loop.

    httpx closes idle ones only when the next request comes; here a timer does, after `idle_s`.
    """

    def __init__(
        self,
        rules: UrlRules,
        tls: ssl.SSLContext,
        most: int,
        resolve: Resolver | None = None,
        idle_s: float = KEEPALIVE_S,
    ) -> None:
        self._rules = rules
        self._tls = tls
        self._most = most
        self._resolve = resolve
        self._idle_s = idle_s
        self._cares: CaresResolver | None = None
        self._made: dict[bool, httpx.AsyncHTTPTransport] = {}
        self._using = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def of(self, target: Target) -> AsyncIterator[httpx.AsyncHTTPTransport]:
        """The connections that may be dialled for this target, for as long as the context lasts."""
        self._using += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            if target.trusted not in self._made:
                self._made[target.trusted] = self._make(target.trusted)
            yield self._made[target.trusted]
        finally:
            self._using -= 1
            if not self._using:
                self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._close_idle)

    async def close(self) -> None:
        """Closes every connection and gives up every look-up. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        made, self._made = self._made, {}
        for transport in made.values():
            await transport.aclose()
        if self._closing:
            await asyncio.wait(self._closing)
        if self._cares is not None:
            await self._cares.close()
            self._cares = None

    def _make(self, for_trusted: bool) -> httpx.AsyncHTTPTransport:
        resolve = self._resolve
        if resolve is None:
            resolve = self._cares = self._cares or CaresResolver()
        if for_trusted:
            return trusted(self._tls, self._most, resolve, self._rules.may_reach_trusted)
        return public(self._tls, self._most, resolve, self._rules.may_reach)

    def _close_idle(self) -> None:
        self._timer = None
        made, self._made = self._made, {}
        for transport in made.values():
            task = asyncio.get_running_loop().create_task(transport.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
