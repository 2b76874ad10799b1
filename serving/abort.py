"""Telling engines to forget a request: sent at once, again where the first may have been too early, owned to the end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import orjson

from serving.service import EngineEndpoint
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError
from toolkit.core.http.request import JSON_HEADERS

MAX_REPLY_BYTES = 64_000
ABORT_TIMEOUT_S = 2.0

EARLY_S = 2.0
ABORT_AGAIN_S = 1.5
"""An abort may overtake its own request: SGLang ignores a rid that it has not registered yet, and then holds the half-made
pair for its own 60 s. An attempt that ended within EARLY_S is therefore aborted once more."""


class Aborter:
    """Owns the abort requests, which outlive the attempts that they end."""

    def __init__(self, client: HttpClient, on_abort: Callable[[str], None]) -> None:
        """on_abort is told the name of every engine that is sent one."""
        self._client = client
        self._on_abort = on_abort
        self._open: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def abort(self, engine: EngineEndpoint, rid: str, again: bool) -> None:
        """Tell the engine now; again: and once more in a while."""
        self._on_abort(engine.name)
        task = asyncio.get_running_loop().create_task(self._keep_aborting(engine, rid, again))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def drain(self) -> None:
        """Wait for those under way; second ones are sent now."""
        self._draining.set()
        while self._open:
            await asyncio.wait(self._open)

    async def _keep_aborting(self, engine: EngineEndpoint, rid: str, again: bool) -> None:
        await self._send(engine, rid)
        if again:
            with suppress(TimeoutError):
                async with asyncio.timeout(ABORT_AGAIN_S):
                    await self._draining.wait()
            await self._send(engine, rid)

    async def _send(self, engine: EngineEndpoint, rid: str) -> None:
        with suppress(TransportError, TimeoutError):  # a dead engine has nothing left to abort
            async with asyncio.timeout(ABORT_TIMEOUT_S):
                body = orjson.dumps({"rid": rid, "abort_all": False})
                response = await self._client.send("POST", f"{engine.url}/abort_request", JSON_HEADERS, body)
                try:
                    await response.read(MAX_REPLY_BYTES)
                finally:
                    response.close()
