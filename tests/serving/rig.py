"""A whole gateway in memory: real parts, stand-in engines on real sockets, exchanges without a server."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from serving.config import ServeConfig
from serving.gateway import Gateway
from serving.service import Service
from tests.serving.fake_exchange import FakeExchange
from tests.serving.stand_ins import Leg, stand_ins
from toolkit.core.clock import SystemClock
from toolkit.core.config import merge
from toolkit.core.journal import read

OWN_KEY = "of the launcher"
MODEL = {"family": "qwen2_5_vl", "min_pixels": 3136, "max_pixels": 200704}


def chat(stream: bool = True, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream, **fields}


class Rig:
    """A gateway with its engines; `ask` runs one request to its end."""

    def __init__(self, gateway: Gateway, legs: dict[str, Leg], run_dir: Path) -> None:
        self.gateway = gateway
        self.legs = legs
        self.run_dir = run_dir

    async def ask(self, body: bytes | dict[str, Any] | None = None, **kwargs: Any) -> FakeExchange:
        exchange = FakeExchange(chat() if body is None else body, **kwargs)
        await self.gateway.api.handle(exchange)
        return exchange

    async def prove(self) -> None:
        for name in self.gateway.book.engines:
            self.gateway.book.engine_seen(name, up=True)
        for pair in self.gateway.book.unproven():
            self.gateway.book.proven(pair)
        await self.gateway.kv.look()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.gateway.telemetry.registry.get_sample_value(name, labels)


@contextlib.asynccontextmanager
async def rig(
    tmp_path: Path, settings: dict[str, Any] | None = None, prove: bool = True, **faults: Any
) -> AsyncIterator[Rig]:
    """faults: by engine, as for `stand_ins`. At its end, whatever the test did, every ledger must be balanced and nothing may be left open."""
    async with stand_ins(**{"prefill_0": {}, "decode_0": {}, **faults}) as legs:
        config = ServeConfig.model_validate(merge({"model": MODEL}, settings or {}))
        service = Service(
            config=config,
            engines=tuple(leg.endpoint for leg in legs.values()),
            gateway_url="http://127.0.0.1:1",
            model_name="m",
            started_at=time.time(),
            own_key=OWN_KEY,
        )
        gateway = Gateway(service, tmp_path, SystemClock(), random.Random(5))
        made = Rig(gateway, legs, tmp_path)
        try:
            await gateway.start()
            if prove:
                await made.prove()
            yield made
            await gateway.dispatcher.drain()
            gateway.admission.check()
            gateway.book.check()
            assert gateway.admission.idle
            assert gateway.fallback.in_flight == 0
            assert gateway.lifecycle.open_requests == 0
        finally:
            await gateway.close()
            assert gateway.client.open_connections == 0


def records(run_dir: Path) -> list[dict[str, Any]]:
    """What the journal holds, once the gateway is closed."""
    return list(read(run_dir / "journal" / "requests.jsonl"))


async def until(condition: Any, timeout_s: float = 5.0) -> None:
    """Let the loop run until `condition()`; fails loudly instead of hanging."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.001)
