"""The KV pools of the decode engines, as they tell them: sizes from /server_info, use from /v1/loads every second or so.

/v1/loads answers from a snapshot that SGLang publishes when it is idle and every 15 decode steps (pool.py reckons with that);
/server_info asks the scheduler itself, so it is read once per start of an engine.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson

from serving.schedule.pool import Report
from serving.service import EngineEndpoint
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

log = logging.getLogger("toolkit.gateway")

LOOK_TIMEOUT_S = 2.0
MISSES = 3
"""Looks without an answer after which an engine that has never told is taken for one that does not."""
MAX_BYTES = 1_000_000
MOST = 1 << 53
"""No count that an engine tells is that large; what is, is nonsense, and no integer that JSON readers agree on."""
NOT_UP_LOOK_S = 0.02
"""Between looks at whether an engine is up: it is asked before it has proven itself, so that its first requests find its pool."""
QUEUES = ("decode_prealloc_queue_reqs", "decode_transfer_queue_reqs")

Tell = Callable[[str, Report | None], None]
"""An engine's name and what it says of its pool; None: it is up and does not tell."""


class PoolWatch:
    """One task per decode engine. Tells; decides nothing."""

    def __init__(
        self,
        client: HttpClient,
        decodes: tuple[EngineEndpoint, ...],
        is_up: Callable[[str], bool],
        tell: Tell,
        interval_s: float,
    ) -> None:
        self._client = client
        self._decodes = decodes
        self._is_up = is_up
        self._tell = tell
        self._interval_s = interval_s
        self._page_sizes: dict[str, tuple[int, int]] = {}
        """By engine: the size of the pool that it belongs to, tokens, and the page size."""
        self.identities: dict[str, str] = {}
        """By engine: what tells it from every other, whatever its URL; only of those that tell."""
        self._silent: set[str] = set()
        self._told: set[str] = set()
        self._misses: Counter[str] = Counter()

    async def run(self) -> None:
        """Look at each until cancelled."""
        async with asyncio.TaskGroup() as group:
            for engine in self._decodes:
                group.create_task(self._watch(engine))

    async def look(self) -> None:
        """One look at each, now."""
        await asyncio.gather(*map(self._look, self._decodes))

    async def _watch(self, engine: EngineEndpoint) -> None:
        while True:
            up = self._is_up(engine.name)
            await self._look(engine)
            await asyncio.sleep(self._interval_s if up else min(NOT_UP_LOOK_S, self._interval_s))

    async def _look(self, engine: EngineEndpoint) -> None:
        if not self._is_up(engine.name):
            self._page_sizes.pop(engine.name, None)  # it may come back with others
            return
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                report = await self._report(engine)
        except (TimeoutError, TransportError):
            self._misses[engine.name] += 1
            if engine.name not in self._told and self._misses[engine.name] >= MISSES:
                self._does_not_tell(engine.name)
            return  # load, or the prober's to notice; what it said last holds
        except Exception as error:  # whatever an engine says, it ends nothing here
            log.debug("%s: %r", engine.name, error)
            self._does_not_tell(engine.name)
            return
        self._silent.discard(engine.name)
        self._told.add(engine.name)
        self._tell(engine.name, report)

    def _does_not_tell(self, name: str) -> None:
        if name not in self._silent:
            log.warning("%s does not tell the size and use of its KV pool: no leases", name)
        self._silent.add(name)
        self._told.discard(name)
        self._tell(name, None)

    async def _report(self, engine: EngineEndpoint) -> Report:
        loads = (await self._get(engine, "/v1/loads?include=core,disagg"))["loads"]
        tokens = min(_count(one["max_total_num_tokens"]) for one in loads)
        known, page_size = self._page_sizes.get(engine.name, (-1, 0))
        if known != tokens:
            info = await self._get(engine, "/server_info")
            page_size = _count(info["page_size"] or 1)
            self.identities[engine.name] = identity_of(info)
            if tokens < page_size or page_size < 1 or tokens * len(loads) >= MOST:
                raise ValueError(f"a pool of {len(loads)} x {tokens} tokens in pages of {page_size}")
            self._page_sizes[engine.name] = tokens, page_size
        used = sum(_count(one["num_used_tokens"]) for one in loads)
        stamp = tuple(one["timestamp"] for one in loads)
        return Report(tokens, page_size, len(loads), used, stamp, sum(map(_queued, loads)))

    async def _get(self, engine: EngineEndpoint, path: str) -> dict[str, Any]:
        response = await self._client.send("GET", f"{engine.url}{path}")
        try:
            body = await response.read(MAX_BYTES)
        finally:
            response.close()
        document = orjson.loads(body)
        if response.status != 200 or not isinstance(document, dict):
            raise ValueError(f"{path} answered {response.status}")
        return document


def identity_of(info: dict[str, Any]) -> str:
    """Of one start of an engine: its seed is random unless set, the times that its start took are no other's. Empty where it
    does not tell those."""
    if not info.get("startup_time"):
        return ""
    told = orjson.dumps([info.get(name) for name in ("port", "random_seed", "startup_time")])
    return hashlib.sha256(told).hexdigest()[:16]


def _queued(load: dict[str, Any]) -> int:
    """Requests of one rank that wait for room, for their KV cache, or for a place in the batch."""
    disaggregation = load.get("disaggregation") or {}
    queues = (load.get("num_waiting_reqs"), *map(disaggregation.get, QUEUES))
    return sum(_count(length or 0) for length in queues)


def _count(told: Any) -> int:
    """At least 0. Raises for what is no count, or more than anything that is counted here."""
    count = int(told)
    if count >= MOST:
        raise ValueError(f"a count of {count:.3g}")
    return max(0, count)
