"""The paths of an engine. What the real one would take from its model is made up here; the shapes are its own."""

import asyncio
import os
import signal
import uuid
from collections.abc import Awaitable, Callable

import orjson

from serving.engines.simulated import dialect, pages
from serving.engines.simulated.engine import Engine, Heard
from serving.engines.simulated.faults import Faults
from serving.engines.simulated.generation import ChatAnswer, GenerateAnswer, Generation
from serving.engines.simulated.media import Eyes
from serving.engines.simulated.metrics import Metrics
from serving.engines.simulated.pages import Identity
from serving.engines.simulated.prompt import Ask, Refused, read_chat, read_generate
from serving.engines.simulated.rendezvous import Peers
from serving.engines.simulated.state import Job
from serving.engines.simulated.wire import WiredCall
from toolkit.core.clock import Clock

HEALTH_FIRST_LOOK_S = 1.0
HEALTH_TIMEOUT_S = 20.0
"""SGLANG_HEALTH_CHECK_TIMEOUT: /health that generates answers 503 after so long (http_server.py:218)."""


Read = Callable[[bytes, Eyes, int, int], Awaitable[Ask]]
Refusal = Callable[[Refused], object]
MakeWriter = Callable[[Ask, str], ChatAnswer | GenerateAnswer]


class Server:
    """Answers every path of the engine's port."""

    def __init__(
        self,
        identity: Identity,
        engine: Engine,
        peers: Peers,
        eyes: Eyes,
        metrics: Metrics,
        clock: Clock,
        answer_tokens: int = 0,
    ) -> None:
        self._clock = clock
        self._epoch = clock.wall() - clock.monotonic()
        self._answer_tokens = answer_tokens
        self._identity = identity
        self._engine = engine
        self._peers = peers
        self._eyes = eyes
        self._metrics = metrics
        self._open = 0
        self.idle = asyncio.Event()  # no generation is under way
        self.idle.set()
        self.stopping = False
        self._paths: dict[str, Callable[[WiredCall], Awaitable[None]]] = {
            "/ready": self._ready,
            "/health": self._health,
            "/health_generate": self._health_generate,
            "/server_info": self._server_info,
            "/get_server_info": self._server_info,
            "/model_info": self._model_info,
            "/get_model_info": self._model_info,
            "/v1/models": self._models,
            "/v1/loads": self._loads,
            "/metrics": self._page,
            "/metrics/": self._page,
            "/generate": self._generate,
            "/v1/chat/completions": self._chat,
            "/abort_request": self._abort,
            "/flush_cache": self._flush,
            "/pause_generation": self._pause,
            "/continue_generation": self._continue,
            "/simulated/faults": self._faults,
            "/simulated/kv": peers.kv,
        }

    async def handle(self, call: WiredCall) -> None:
        path = self._paths.get(call.path)
        try:
            if path is None:
                await call.json({"detail": "Not Found"}, 404)
            else:
                await path(call)
        finally:
            if self._metrics.requests is not None and call.status:
                self._metrics.requests.http(call.path, call.method, call.status)

    async def _ready(self, call: WiredCall) -> None:
        await call.answer(503 if self._engine.scheduler.faults.starting else 200)

    async def _health(self, call: WiredCall) -> None:
        if self._identity.health_generates:
            await self._health_generate(call)
        else:
            await call.answer(503 if self.stopping else 200)

    async def _health_generate(self, call: WiredCall) -> None:
        if self.stopping:
            await call.answer(503)
            return
        began = self._engine.now
        rid = f"HEALTH_CHECK_{uuid.uuid4().hex}"
        heard: asyncio.Queue[Heard | None] = asyncio.Queue()
        self._engine.submit(Job(rid=rid, prompt_tokens=1, answer_tokens=1, fake=True), heard)
        try:
            while self._engine.now < began + HEALTH_TIMEOUT_S:
                await asyncio.sleep(HEALTH_FIRST_LOOK_S)
                if self._engine.heard_at > began:
                    await call.answer(200)
                    return
            await call.answer(503)
        finally:
            self._engine.abort(rid)

    async def _server_info(self, call: WiredCall) -> None:
        load = self._engine.scheduler.loads(self._engine.now)
        await call.json(pages.server_info(self._identity, self._engine.scheduler.limits, load))

    async def _model_info(self, call: WiredCall) -> None:
        await call.json(pages.model_info(self._identity))

    async def _models(self, call: WiredCall) -> None:
        limits = self._engine.scheduler.limits
        await call.json(pages.models(self._identity, limits, int(self._clock.wall())))

    async def _loads(self, call: WiredCall) -> None:
        scheduler = self._engine.scheduler
        load = scheduler.loads(self._engine.now)
        size = scheduler.costs.kv_bytes(scheduler.limits.max_total_tokens)
        await call.json(pages.loads(self._identity, scheduler.limits, load, size, self._epoch + load.at))

    async def _page(self, call: WiredCall) -> None:
        page = self._metrics.page(self._engine.scheduler)
        await call.answer(200, page, "text/plain; version=0.0.4; charset=utf-8")

    async def _chat(self, call: WiredCall) -> None:
        await self._generation(call, read_chat, dialect.chat_refusal, self._chat_answer)

    async def _generate(self, call: WiredCall) -> None:
        await self._generation(call, read_generate, dialect.generate_refusal, self._generate_answer)

    async def _generation(self, call: WiredCall, read: Read, refusal: Refusal, writer: MakeWriter) -> None:
        wire = self._engine.scheduler.faults.wire
        call.meet(wire)
        body = await call.body()
        if wire.status:
            await call.json(dialect.refusal(wire.message, str(wire.status), wire.status), wire.status)
            return
        context = self._engine.scheduler.limits.context_tokens
        try:
            ask = await read(body, self._eyes, context, self._answer_tokens)
        except Refused as error:
            await call.json(refusal(error), error.status)
            return
        rid = ask.rid or uuid.uuid4().hex
        await self._run(call, ask, rid, writer(ask, rid))

    def _chat_answer(self, ask: Ask, rid: str) -> ChatAnswer:
        pad = self._engine.scheduler.faults.wire.pad_chars
        return ChatAnswer(ask, rid, int(self._clock.wall()), pad)

    def _generate_answer(self, ask: Ask, rid: str) -> GenerateAnswer:
        began = self._engine.now
        return GenerateAnswer(ask, rid, lambda: self._engine.now - began)

    async def _run(self, call: WiredCall, ask: Ask, rid: str, writer: ChatAnswer | GenerateAnswer) -> None:
        self._open += 1
        self.idle.clear()
        try:
            role, requests = self._identity.role, self._metrics.requests
            await Generation(call, ask, self._engine, role, requests, self._engine.now).run(rid, writer)
        finally:
            self._open -= 1
            if not self._open:
                self.idle.set()

    async def _abort(self, call: WiredCall) -> None:
        document = orjson.loads(await call.body() or b"{}")
        self._engine.abort(str(document.get("rid") or ""), everything=bool(document.get("abort_all")))
        await call.answer(200)

    async def _flush(self, call: WiredCall) -> None:
        if self._engine.scheduler.flush():
            await call.answer(200, b"Cache flushed.\n", "text/plain; charset=utf-8")
        else:
            await call.answer(400, b"Flush cache failed.\n", "text/plain; charset=utf-8")

    async def _pause(self, call: WiredCall) -> None:
        mode = str(orjson.loads(await call.body() or b"{}").get("mode") or "abort")
        self._engine.pause(mode)
        await call.json({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, call: WiredCall) -> None:
        await call.body()
        self._engine.resume()
        await call.json({"message": "Generation continued successfully.", "status": "ok"})

    async def _faults(self, call: WiredCall) -> None:
        faults = self._engine.scheduler.faults
        if call.method == "POST":
            try:
                given = orjson.loads(await call.body())
                faults = Faults.of(given, faults)
            except ValueError as error:
                await call.json({"error": {"message": str(error)}}, 400)
                return
            self._engine.set_faults(faults)
        await call.json({"simulated": True, **faults.told()})
        if faults.die:
            os.kill(os.getpid(), signal.SIGKILL)
