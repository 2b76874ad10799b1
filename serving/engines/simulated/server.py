"""The paths of an engine. What the real one would take from its model is made up here; the shapes are its own."""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import ValidationError

from serving.engines.simulated import dialect
from serving.engines.simulated.effects import Role
from serving.engines.simulated.engine import Engine, Heard
from serving.engines.simulated.faults import Faults
from serving.engines.simulated.generation import ChatAnswer, GenerateAnswer, Generation
from serving.engines.simulated.http import Call
from serving.engines.simulated.media import Eyes
from serving.engines.simulated.metrics import Metrics
from serving.engines.simulated.prompt import Ask, Refused, read_chat, read_generate
from serving.engines.simulated.rendezvous import Peers
from serving.engines.simulated.state import Job

VERSION = "0.5.23"
"""The SGLang whose dialect this is."""
HEALTH_FIRST_LOOK_S = 1.0
HEALTH_TIMEOUT_S = 20.0
"""SGLANG_HEALTH_CHECK_TIMEOUT: /health that generates answers 503 after so long (http_server.py:218)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the engine says of itself. health_generates: /health runs a token, as SGLang's does unless told otherwise."""

    model_name: str
    role: Role
    port: int
    bootstrap_port: int
    preset: str
    health_generates: bool

    @property
    def mode(self) -> str:
        return "null" if self.role == "unified" else self.role


class Server:
    """Answers every path of the engine's port."""

    def __init__(
        self, identity: Identity, engine: Engine, peers: Peers, eyes: Eyes, metrics: Metrics
    ) -> None:
        self._identity = identity
        self._engine = engine
        self._peers = peers
        self._eyes = eyes
        self._metrics = metrics
        self._open = 0
        self.idle = asyncio.Event()  # no generation is under way
        self.idle.set()
        self.stopping = False
        self._paths: dict[str, Callable[[Call], Awaitable[None]]] = {
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

    async def handle(self, call: Call) -> None:
        path = self._paths.get(call.path)
        try:
            if path is None:
                await call.json({"detail": "Not Found"}, 404)
            else:
                await path(call)
        finally:
            if self._metrics.requests is not None and call.status:
                self._metrics.requests.http(call.path, call.method, call.status)

    async def _ready(self, call: Call) -> None:
        await call.answer(200)

    async def _health(self, call: Call) -> None:
        if self._identity.health_generates:
            await self._health_generate(call)
        else:
            await call.answer(503 if self.stopping else 200)

    async def _health_generate(self, call: Call) -> None:
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

    async def _server_info(self, call: Call) -> None:
        identity, limits = self._identity, self._engine.scheduler.limits
        load = self._engine.scheduler.loads(self._engine.now)
        await call.json(
            {
                "simulated": True,
                "preset": identity.preset,
                "model_path": "simulated",
                "tokenizer_path": "simulated",
                "served_model_name": identity.model_name,
                "port": identity.port,
                "tp_size": 1,
                "dp_size": 1,
                "page_size": limits.page_size,
                "max_running_requests": limits.max_running,
                "max_total_tokens": limits.max_total_tokens,
                "max_total_num_tokens": limits.max_total_tokens,
                "context_length": limits.context_tokens,
                "chunked_prefill_size": limits.chunk_tokens,
                "disaggregation_mode": identity.mode,
                "disaggregation_bootstrap_port": identity.bootstrap_port,
                "disaggregation_transfer_backend": "simulated",
                "enable_metrics": True,
                "version": VERSION,
                "internal_states": [
                    {
                        "effective_max_running_requests_per_dp": limits.max_running,
                        "last_gen_throughput": load.throughput,
                        "memory_usage": {"token_capacity": limits.max_total_tokens},
                    }
                ],
            }
        )

    async def _model_info(self, call: Call) -> None:
        await call.json(
            {
                "simulated": True,
                "model_path": "simulated",
                "served_model_name": self._identity.model_name,
                "tokenizer_path": "simulated",
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "load_format": "auto",
                "reasoning_parser": None,
                "tool_call_parser": None,
                "disaggregation_mode": self._identity.mode,
                "has_image_understanding": True,
                "has_audio_understanding": False,
                "model_type": "qwen2_5_vl",
                "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            }
        )

    async def _models(self, call: Call) -> None:
        name = self._identity.model_name
        one = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self._engine.scheduler.limits.context_tokens,
        }
        await call.json({"object": "list", "data": [one]})

    async def _loads(self, call: Call) -> None:
        load, limits = self._engine.scheduler.loads(self._engine.now), self._engine.scheduler.limits
        one: dict[str, Any] = {
            "timestamp": time.time() - (self._engine.now - load.at),
            "dp_rank": 0,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.waiting,
            "num_waiting_uncached_tokens": load.waiting_tokens,
            "num_used_tokens": load.used_tokens,
            "num_total_tokens": load.used_tokens,
            "num_active_tokens": load.context_tokens,
            "num_prealloc_ready_tokens": 0,
            "max_total_num_tokens": limits.max_total_tokens,
            "max_running_requests": limits.max_running,
            "token_usage": round(load.used_tokens / limits.max_total_tokens, 4),
            "gen_throughput": round(load.throughput, 2),
            "cache_hit_rate": 0.0,
            "utilization": 0.0,
            "total_prefill_uncached_tokens": load.prefill_tokens,
            "total_prefill_busy_us": int(load.prefill_busy_s * 1e6),
            "decode_moments": None,
            "memory": {
                "weight_gb": 0.0,
                "kv_cache_gb": round(
                    self._engine.scheduler.costs.kv_bytes(limits.max_total_tokens) / 2**30, 3
                ),
                "graph_gb": 0.0,
                "token_capacity": limits.max_total_tokens,
            },
            "disaggregation": {
                "mode": self._identity.mode,
                "prefill_bootstrap_queue_reqs": load.bootstrap,
                "prefill_inflight_queue_reqs": load.inflight,
                "decode_prealloc_queue_reqs": load.prealloc,
                "decode_transfer_queue_reqs": load.transfer,
                "decode_retracted_queue_reqs": load.retracted,
                "kv_transfer_speed_gb_s": load.transfer_bytes_per_s / 1e9,
                "kv_transfer_latency_ms": load.transfer_s * 1e3,
            },
            "queues": {
                "waiting": load.waiting,
                "grammar": 0,
                "paused": load.paused,
                "retracted": load.retracted,
                "prealloc_ready": 0,
            },
        }
        await call.json(
            {
                "timestamp": datetime.now(UTC).isoformat(),
                "version": VERSION,
                "accelerator": None,
                "num_accelerators": 1,
                "loads": [one],
            }
        )

    async def _page(self, call: Call) -> None:
        page = self._metrics.page(self._engine.scheduler)
        await call.answer(200, page, "text/plain; version=0.0.4; charset=utf-8")

    async def _chat(self, call: Call) -> None:
        try:
            ask = await read_chat(await call.body(), self._eyes, self._engine.scheduler.limits.context_tokens)
        except Refused as error:
            await call.json(dialect.refusal(error.message, error.kind, error.status), error.status)
            return
        rid = ask.rid or uuid.uuid4().hex
        await self._run(call, ask, rid, ChatAnswer(ask, rid))

    async def _generate(self, call: Call) -> None:
        try:
            ask = await read_generate(
                await call.body(), self._eyes, self._engine.scheduler.limits.context_tokens
            )
        except Refused as error:
            await call.json(dialect.generate_refusal(error), error.status)
            return
        rid = ask.rid or uuid.uuid4().hex
        await self._run(call, ask, rid, GenerateAnswer(ask, rid, time.monotonic()))

    async def _run(self, call: Call, ask: Ask, rid: str, writer: ChatAnswer | GenerateAnswer) -> None:
        self._open += 1
        self.idle.clear()
        try:
            role, requests = self._identity.role, self._metrics.requests
            await Generation(call, ask, self._engine, role, requests, self._engine.now).run(rid, writer)
        finally:
            self._open -= 1
            if not self._open:
                self.idle.set()

    async def _abort(self, call: Call) -> None:
        document = orjson.loads(await call.body() or b"{}")
        self._engine.abort(str(document.get("rid") or ""), everything=bool(document.get("abort_all")))
        await call.answer(200)

    async def _flush(self, call: Call) -> None:
        if self._engine.scheduler.flush():
            await call.answer(200, b"Cache flushed.\n", "text/plain; charset=utf-8")
        else:
            await call.answer(400, b"Flush cache failed.\n", "text/plain; charset=utf-8")

    async def _pause(self, call: Call) -> None:
        mode = str(orjson.loads(await call.body() or b"{}").get("mode") or "abort")
        self._engine.scheduler.pause(mode, self._engine.now)
        self._engine.settle()
        await call.json({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, call: Call) -> None:
        await call.body()
        self._engine.scheduler.resume(self._engine.now)
        self._engine.settle()
        await call.json({"message": "Generation continued successfully.", "status": "ok"})

    async def _faults(self, call: Call) -> None:
        faults = self._engine.scheduler.faults
        if call.method == "POST":
            try:
                given = orjson.loads(await call.body())
                faults = Faults.model_validate({**faults.model_dump(), **given})
            except (ValidationError, orjson.JSONDecodeError, TypeError) as error:
                await call.json({"error": {"message": str(error)}}, 400)
                return
            self._engine.set_faults(faults)
        await call.json({"simulated": True, **faults.model_dump()})
        if faults.die:
            os.kill(os.getpid(), signal.SIGKILL)
