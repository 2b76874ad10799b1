"""Whether a target has digested what it was sent, so that one probe's backlog is not the next one's.

Two signs, twice in a row: the gauges of its /metrics pages (where it has any that are known) show nothing waiting and
nothing in flight, and a tiny request is answered as quickly as before the first probe.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.core.clock import Clock
from toolkit.core.http.errors import TransportError
from workloads.client import CHAT_PATH
from workloads.prepare import authorization
from workloads.scrape import LEVELS, MAX_PAGE_BYTES, Source, pick

if TYPE_CHECKING:
    from toolkit.core.http.client import HttpClient

EVERY_S = 0.5
TINY_TIMEOUT_S = 10.0
ROOM_S = 0.05
FACTOR = 2.0
GAUGES = tuple(name for what, names in LEVELS if what != "token usage" for name in names)


class Quiet:
    """One target. The client belongs to the caller."""

    def __init__(
        self,
        client: "HttpClient",
        target: str,
        model: str,
        api_key: str,
        pages: Sequence[Source],
        clock: Clock,
    ) -> None:
        self._client = client
        self._url = f"{target}{CHAT_PATH}"
        asked = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        self._body = json.dumps(asked).encode()
        self._key = authorization(api_key)
        self._pages = pages
        self._clock = clock
        self._idle_s: float | None = None

    async def learn(self) -> None:
        """Measure the tiny request on the idle target; without an answer, only the gauges will tell."""
        seen = [took for _ in range(3) if (took := await self._tiny()) is not None]
        self._idle_s = min(seen, default=None)

    async def wait(self, limit_s: float) -> float | None:
        """Seconds until it was quiet; None when it was not within the limit."""
        began, in_a_row = self._clock.monotonic(), 0
        while True:
            in_a_row = in_a_row + 1 if await self._is_quiet() else 0
            waited_s = self._clock.monotonic() - began
            if in_a_row >= 2:
                return waited_s
            if waited_s >= limit_s:
                return None
            await asyncio.sleep(EVERY_S)

    async def _is_quiet(self) -> bool:
        if any([await self._busy(page) for page in self._pages]):
            return False
        if self._idle_s is None:
            return True
        took = await self._tiny()
        return took is not None and took <= max(FACTOR * self._idle_s, self._idle_s + ROOM_S)

    async def _tiny(self) -> float | None:
        """How long it took; None when it failed."""
        began = self._clock.monotonic()
        headers = [*self._key, ("content-type", "application/json")]
        try:
            async with asyncio.timeout(TINY_TIMEOUT_S):
                response = await self._client.send("POST", self._url, headers, self._body)
                await response.read(MAX_PAGE_BYTES)
        except (TransportError, TimeoutError, ValueError):
            return None
        return self._clock.monotonic() - began if response.status == 200 else None

    async def _busy(self, page: Source) -> bool:
        try:
            async with asyncio.timeout(TINY_TIMEOUT_S):
                response = await self._client.send("GET", page.url, self._key)
                values = pick(await response.read(MAX_PAGE_BYTES), GAUGES) if response.status == 200 else {}
        except (TransportError, TimeoutError, ValueError):
            return False  # no page is no sign
        return sum(values.values()) > 0
