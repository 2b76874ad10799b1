"""Two real gateways before one real decode pool that is too small for their load, with kills of either and of the server."""

import asyncio
import contextlib
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving.engines.simulated.effects import Limits
from serving.schedule_config import LeaseConfig, ScheduleConfig, SloConfig
from serving.service import Service
from serving.shared_config import SharedConfig
from tests.serving.access.valkey import Valkey
from tests.serving.gateways import GatewayProcess, eventually, gateways
from tests.serving.stand_ins import INSTANT, Leg, stand_ins
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

pytestmark = pytest.mark.proof

POOL, ANSWER = 8192, 800
FIT = POOL // ANSWER
"""Requests whose answers of up to so many tokens fit at once, with their short prompts."""
DECODE: dict[str, Any] = {
    "settings": {
        "limits": Limits(max_total_tokens=POOL),
        "costs": replace(INSTANT, decode_s=0.02),
        "answer_tokens": 20,
    }
}
BODY = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": ANSWER, "stream": True}
).encode()


class Load:
    """Keeps so many requests under way at one gateway, and counts how they end."""

    def __init__(self, gateway: GatewayProcess, at_once: int) -> None:
        self.ended: Counter[str] = Counter()
        self._gateway = gateway
        self._tasks = [asyncio.create_task(self._client()) for _ in range(at_once)]

    async def _client(self) -> None:
        client = HttpClient()
        try:
            while True:
                try:
                    response = await client.send(
                        "POST",
                        f"{self._gateway.url}/v1/chat/completions",
                        [("content-type", "application/json")],
                        BODY,
                    )
                    text = (await response.read()).decode()
                    whole = (
                        response.status == 200 and text.endswith("data: [DONE]\n\n") and '"error"' not in text
                    )
                    self.ended["whole" if whole else json.loads(text)["error"]["code"]] += 1
                except (TransportError, ValueError, KeyError):
                    self.ended["lost"] += 1
                if not self.ended["whole"]:
                    await asyncio.sleep(0.02)
        finally:
            await client.close()

    async def more(self, requests: int) -> None:
        """Returns when so many more are answered."""
        ends = self.ended["whole"] + requests

        async def enough() -> bool:
            return self.ended["whole"] >= ends

        await eventually(enough, 60)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def most_inside(decode: Leg) -> AsyncIterator[list[int]]:
    """The engine's own count of requests, its largest so far."""
    most = [0]

    async def look() -> None:
        while True:
            most[0] = max(most[0], decode.stand_in.engine.scheduler.live)
            await asyncio.sleep(0.002)

    task = asyncio.create_task(look())
    try:
        yield most
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def whole_pool(gateway: GatewayProcess) -> bool:
    client = HttpClient()
    try:
        response = await client.send("GET", f"{gateway.url}/readyz")
        shared = json.loads(await response.read())["shared"]
        return bool(shared["tokens"]["decode-0"] == POOL)
    finally:
        await client.close()


def with_settings(url: str) -> type[GatewayProcess]:
    """Gateways that share at that URL; empty: that do not."""

    class Set(GatewayProcess):
        def __init__(self, folder: Path, legs: dict[str, Leg], port: int) -> None:
            super().__init__(folder, legs, port)
            service = Service.read(folder)
            mine = {
                "lease": LeaseConfig(look_interval_s=0.1),
                "schedule": ScheduleConfig(adaptive=False),
                "standard": SloConfig(ttft_budget_s=30.0),
                "shared": SharedConfig(url=url, ttl_s=3.0),
            }
            service.model_copy(update={"config": service.config.model_copy(update=mine)}).write(folder)

    return Set


def test_the_engine_never_has_more_than_its_pool_holds_and_nobody_waits_for_the_server(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        with Valkey() as server:
            async with (
                stand_ins(prefill_0={}, decode_0=DECODE) as legs,
                gateways(with_settings(server.url), tmp_path, legs) as made,
                most_inside(legs["decode-0"]) as most,
            ):
                one, two = Load(made[0], 12), Load(made[1], 12)
                await asyncio.gather(one.more(10), two.more(10))

                server.kill()
                await asyncio.gather(one.more(40), two.more(40))  # on grants, then on shares
                server.start()
                await asyncio.gather(one.more(40), two.more(40))

                await made[0].end(signal.SIGKILL)
                await eventually(lambda: whole_pool(made[1]), 20)
                await two.more(40)
                await asyncio.gather(one.end(), two.end())

        assert most[0] <= FIT
        assert set(two.ended) == {"whole"}

    asyncio.run(main())


def test_without_sharing_they_would_have_given_the_pool_twice(tmp_path: Path) -> None:
    """What the test above would show if sharing did nothing."""

    async def main() -> None:
        async with (
            stand_ins(prefill_0={}, decode_0=DECODE) as legs,
            gateways(with_settings(""), tmp_path, legs) as made,
            most_inside(legs["decode-0"]) as most,
        ):
            loads = [Load(one, 12) for one in made]
            await asyncio.gather(*(load.more(10) for load in loads))
            await asyncio.gather(*(load.end() for load in loads))

        assert most[0] > FIT

    asyncio.run(main())
