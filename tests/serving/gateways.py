"""Gateway processes over stand-ins, and a client that does what a load balancer does."""

import asyncio
import contextlib
import json
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serving.config import ServeConfig
from serving.service import Service
from tests.serving.rig import MODEL
from tests.serving.stand_ins import INSTANT, Leg
from toolkit.core.admin import Door, call
from toolkit.core.config import merge
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

QUICK = {"health_interval_s": 0.1, "drain_timeout_s": 20}
STREAMING = {"costs": replace(INSTANT, decode_s=0.01), "answer_tokens": 20}
"""Settings of a stand-in whose answers take a fifth of a second."""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


class GatewayProcess:
    """One gateway with a run folder and a port of its own; it can be started again."""

    def __init__(self, folder: Path, legs: dict[str, Leg], port: int, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.port = port
        folder.mkdir()
        base = {"model": MODEL, "gateway": {**QUICK, "port": port}}
        Service(
            config=ServeConfig.model_validate(merge(base, settings)),
            engines=tuple(leg.endpoint for leg in legs.values()),
            gateway_url=self.url,
            model_name="m",
            started_at=time.time(),
        ).write(folder)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        log = (self.folder / "gateway.log").open("ab")
        with log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "serving.gateway", "--run", str(self.folder), stdout=log, stderr=log
            )
        await eventually(self._ready, 30)

    async def _ready(self) -> bool:
        assert self.process.returncode is None, (self.folder / "gateway.log").read_text()
        return await get(f"{self.url}/readyz") == 200

    async def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()

    async def admin(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await asyncio.to_thread(call, Door.read(self.folder), method, path, body)

    async def set(self, **values: Any) -> None:
        await self.admin("POST", "/changes", {"set": values})

    async def instance(self, name: str) -> dict[str, Any]:
        state = await self.admin("GET", "/state")
        return next(dict(one) for one in state["instances"] if one["name"] == name)

    async def serves(self, decode: str) -> bool:
        state = await self.admin("GET", "/state")
        return any(pair["serves"] for pair in state["pairs"] if pair["decode"] == decode)


@contextlib.asynccontextmanager
async def gateways(
    folder: Path, legs: dict[str, Leg], count: int = 2, settings: dict[str, Any] | None = None
) -> AsyncIterator[list[GatewayProcess]]:
    made = [
        GatewayProcess(folder / f"gateway-{number}", legs, port, settings or {})
        for number, port in enumerate(free_ports(count))
    ]
    try:
        await asyncio.gather(*(one.start() for one in made))
        yield made
    finally:
        await asyncio.gather(*(one.end(signal.SIGKILL) for one in made if hasattr(one, "process")))


async def get(url: str) -> int:
    """The status of a page; 0 where nobody answers."""
    client = HttpClient()
    try:
        async with asyncio.timeout(2):
            response = await client.send("GET", url)
            await response.read()
            return response.status
    except (TransportError, TimeoutError):
        return 0
    finally:
        await client.close()


async def eventually(condition: Any, timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.05)


@dataclass
class Answer:
    """What a client got. tries: gateways that were asked."""

    status: int
    text: str
    tries: int = 1

    @property
    def whole(self) -> bool:
        """Answered to its end."""
        if self.text.startswith("data:"):
            return self.text.endswith("data: [DONE]\n\n") and '"error"' not in self.text
        return self.status == 200 and '"finish_reason":"stop"' in self.text.replace(" ", "")


def body(stream: bool, **fields: Any) -> bytes:
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": "m", "messages": messages, "stream": stream, **fields}).encode()


class Balancer:
    """Takes gateways in turn; a request that none has begun to answer, or that is answered 503, goes to the other."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._client = HttpClient(connect_timeout_s=30)
        self._turn = 0

    async def ask(self, stream: bool) -> Answer:
        self._turn = turn = self._turn + 1
        answer = Answer(0, "", 0)
        for number in range(2 * len(self._urls)):
            answer.tries += 1
            try:
                response = await self._client.send(
                    "POST",
                    f"{self._urls[(turn + number) % len(self._urls)]}/v1/chat/completions",
                    [("content-type", "application/json")],
                    body(stream),
                )
            except TransportError as error:
                answer.text = f"{answer.text}; {error!r}"
                continue
            answer.status = response.status
            text = (await response.read()).decode()
            if response.status != 503:
                answer.text = text
                break
            answer.text = f"{answer.text}; {text}"
        return answer

    async def close(self) -> None:
        await self._client.close()


async def load(ask: Any, per_s: float, until: asyncio.Event) -> list[Answer]:
    """Answers to requests at this rate, until told to stop; an exception is an answer too."""
    asked: list[asyncio.Task[Answer]] = []
    while not until.is_set():
        asked.append(asyncio.create_task(ask(len(asked) % 2 == 0)))
        await asyncio.sleep(1 / per_s)
    return list(await asyncio.gather(*asked))
