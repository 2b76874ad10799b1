"""How prefill and decode engines find each other, and how a KV cache travels: as a small message with its token count.

decode  -> prefill's bootstrap port   GET /route, GET /health (heartbeat)            as in SGLang
decode  -> prefill's bootstrap port   POST /simulated/prealloc, /simulated/withdraw  in place of ZeroMQ
prefill -> decode's HTTP port         POST /simulated/kv                             in place of Mooncake
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from serving.engines.simulated.effects import Deliver, Preallocated, Probe, Withdrawn
from serving.engines.simulated.engine import Engine, ForPeer
from serving.engines.simulated.http import Call
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError
from toolkit.core.http.request import JSON_HEADERS

ROUTE_TRIES = 15
ROUTE_WAIT_S = 1.0
"""Decode asks for a prefill's topology once a second, 15 times, and then fails the request (decode.py:1181)."""
TRANSFER_TIMEOUT_S = 30.0
"""Mooncake's MC_TRANSFER_TIMEOUT: a decode that takes nothing for so long counts as failed."""
PROBE_TIMEOUT_S = 5.0
HEALTH_TIMEOUT_S = 3.0
MAX_ANSWER_BYTES = 64_000


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Seconds between two looks at a prefill, and after how many misses it counts as gone (environ.py:751)."""

    interval_s: float = 5.0
    max_failure: int = 2


class Peers:
    """Carries an engine's effects to its peers. own_url: where prefills reach this decode; session: its name there."""

    def __init__(self, engine: Engine, client: HttpClient, session: str, heartbeat: Heartbeat) -> None:
        self.own_url = ""
        self._engine = engine
        self._client = client
        self._session = session
        self._heartbeat = heartbeat
        self._urls: dict[str, str] = {}
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        engine.to_peer = self._carry

    async def close(self) -> None:
        tasks = [*self._tasks, *self._watched.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # the prefill side

    async def bootstrap(self, call: Call) -> None:
        """The bootstrap server's paths."""
        if call.path == "/health":
            await call.answer(200, b"OK", "text/plain; charset=utf-8")
        elif call.path == "/route" and call.method == "GET":
            await call.json(self._topology(call))
        elif call.path in ("/route", "/register_dp_rank"):
            await call.body()
            await call.answer(200, b"OK", "text/plain; charset=utf-8")
        elif call.path == "/query_dp_ranks":
            rooms = orjson.loads(await call.body() or b"{}").get("bootstrap_rooms", [])
            await call.json({str(room): 0 for room in rooms})
        elif call.path == "/simulated/prealloc":
            document = orjson.loads(await call.body())
            delay = self._engine.scheduler.faults.bootstrap_delay_s
            self._urls[document["session"]] = document["url"]
            await call.json({})
            asyncio.get_running_loop().call_later(delay, self._paired, document["room"], document["session"])
        elif call.path == "/simulated/withdraw":
            self._engine.scheduler.withdrawn(orjson.loads(await call.body())["room"], self._engine.now)
            self._engine.settle()
            await call.json({})
        else:
            await call.answer(404)

    def _topology(self, call: Call) -> dict[str, Any]:
        if call.query("target_tp_rank") not in (None, "-1"):
            return {"rank_ip": "127.0.0.1", "rank_port": 0}
        return {
            "attn_tp_size": 1,
            "attn_cp_size": 1,
            "dp_size": 1,
            "pp_size": 1,
            "page_size": self._engine.scheduler.limits.page_size,
            "kv_cache_dtype": "auto",
            "follow_bootstrap_room": True,
        }

    def _paired(self, room: int, session: str) -> None:
        self._engine.scheduler.paired(room, session, self._engine.now)
        self._engine.settle()

    async def _deliver(self, effect: Deliver) -> None:
        document = {
            "session": effect.session,
            "room": effect.room,
            "news": effect.news,
            "tokens": effect.tokens,
            "message": effect.message,
        }
        fault = ""
        try:
            await self._post(self._urls[effect.session] + "/simulated/kv", document, TRANSFER_TIMEOUT_S)
        except (TransportError, TimeoutError):
            fault = f"remote mooncake session {effect.session} is not alive"
        if effect.news == "done":
            self._engine.scheduler.delivered(effect.rid, fault, self._engine.now)
            self._engine.settle()

    async def _probe(self, effect: Probe) -> None:
        alive = False
        with suppress(TransportError, TimeoutError):
            document = {"session": effect.session, "room": 0, "news": "probe"}
            await self._post(self._urls[effect.session] + "/simulated/kv", document, PROBE_TIMEOUT_S)
            alive = True
        self._engine.scheduler.probed(effect.session, alive, self._engine.now)
        self._engine.settle()

    # the decode side

    async def kv(self, call: Call) -> None:
        """POST /simulated/kv: a KV cache has arrived, or will not."""
        document = orjson.loads(await call.body())
        if document["session"] != self._session:  # meant for the process that had this port before
            await call.json({"error": "another session"}, 409)
            return
        scheduler, now, room = self._engine.scheduler, self._engine.now, document["room"]
        if document["news"] == "started":
            scheduler.started(room, now)
        elif document["news"] == "done":
            scheduler.received(room, now)
        elif document["news"] == "failed":
            scheduler.refused(room, document["message"], now)
        self._engine.settle()
        await call.json({})

    async def _announce(self, effect: Preallocated) -> None:
        if await self._route(effect.bootstrap):
            self._watch(effect.bootstrap)
            document = {"room": effect.room, "session": self._session, "url": self.own_url}
            with suppress(TransportError, TimeoutError):  # the heartbeat or the request's own timeout ends it
                await self._post(
                    f"http://{effect.bootstrap}/simulated/prealloc", document, TRANSFER_TIMEOUT_S
                )
            return
        why = f"Could not fetch prefill parallel info from bootstrap_addr: {effect.bootstrap}"
        self._engine.scheduler.unreachable(effect.rid, why, self._engine.now)
        self._engine.settle()

    async def _route(self, bootstrap: str) -> bool:
        """Whether the prefill's topology is known."""
        for left in range(ROUTE_TRIES - 1, -1, -1):
            if bootstrap in self._known:
                return True
            ranks = "prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
            if await self._healthy(f"http://{bootstrap}/route?{ranks}"):
                self._known.add(bootstrap)
                return True
            if left:
                await asyncio.sleep(ROUTE_WAIT_S)
        return False

    async def _withdraw(self, effect: Withdrawn) -> None:
        with suppress(TransportError, TimeoutError):
            await self._post(
                f"http://{effect.bootstrap}/simulated/withdraw", {"room": effect.room}, HEALTH_TIMEOUT_S
            )

    def _watch(self, bootstrap: str) -> None:
        if bootstrap not in self._watched:
            task = asyncio.get_running_loop().create_task(self._listen(bootstrap))
            self._watched[bootstrap] = task

    async def _listen(self, bootstrap: str) -> None:
        """Look at a prefill until it is gone; then all that waits for it fails."""
        misses = 0
        while misses < self._heartbeat.max_failure:
            await asyncio.sleep(self._heartbeat.interval_s)
            misses = 0 if await self._healthy(f"http://{bootstrap}/health") else misses + 1
        self._known.discard(bootstrap)
        self._watched.pop(bootstrap, None)
        why = f"Lost connection with prefill instance (bootstrap_addr: {bootstrap})"
        self._engine.scheduler.lost(bootstrap, why, self._engine.now)
        self._engine.settle()

    # both

    def _carry(self, effect: ForPeer) -> None:
        work: Coroutine[Any, Any, None]
        if isinstance(effect, Deliver):
            work = self._deliver(effect)
        elif isinstance(effect, Preallocated):
            work = self._announce(effect)
        elif isinstance(effect, Withdrawn):
            work = self._withdraw(effect)
        else:
            work = self._probe(effect)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _healthy(self, url: str) -> bool:
        with suppress(TransportError, TimeoutError):
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                response = await self._client.send("GET", url)
                try:
                    await response.read(MAX_ANSWER_BYTES)
                finally:
                    response.close()
                return response.status == 200
        return False

    async def _post(self, url: str, document: object, timeout_s: float) -> None:
        """Raises TransportError, TimeoutError."""
        async with asyncio.timeout(timeout_s):
            response = await self._client.send("POST", url, JSON_HEADERS, orjson.dumps(document))
            try:
                await response.read(MAX_ANSWER_BYTES)
            finally:
                response.close()
            if response.status != 200:
                raise TimeoutError(f"{url} answered {response.status}")
