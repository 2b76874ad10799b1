"""Two gateways over stand-ins, and a client that does what a load balancer does."""

import asyncio
import contextlib
import json
import random
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from serving.config import ServeConfig
from serving.draining import Draining
from serving.gateway import Gateway
from serving.server import listen, server_of
from serving.service import Service
from tests.serving.fake_exchange import FakeExchange
from tests.serving.rig import MODEL, until
from tests.serving.stand_ins import INSTANT, Leg
from toolkit.core.admin import Door, call
from toolkit.core.clock import SystemClock
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

G = TypeVar("G", bound="AnyGateway")

QUICK = {"health_interval_s": 0.1, "drain_timeout_s": 20}
STREAMING = {"costs": replace(INSTANT, decode_s=0.01), "answer_tokens": 20}
"""Settings of a stand-in whose answers take a fifth of a second."""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


class AnyGateway(ABC):
    """One gateway with a run folder and a port of its own; it can be started again."""

    def __init__(self, folder: Path, legs: dict[str, Leg], port: int) -> None:
        self.folder = folder
        self.port = port
        folder.mkdir()
        config = ServeConfig.model_validate({"model": MODEL, "gateway": {**QUICK, "port": port}})
        Service(
            config=config,
            engines=tuple(leg.endpoint for leg in legs.values()),
            gateway_url=self.url,
            model_name="m",
            started_at=time.time(),
        ).write(folder)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    async def start(self) -> None:
        """Returns when it is ready."""

    @abstractmethod
    async def end(self, number: int = signal.SIGTERM) -> int:
        """By SIGTERM or SIGKILL. Returns the exit status. Idempotent."""

    @abstractmethod
    async def admin(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer of its admin API."""

    async def set(self, **values: Any) -> None:
        await self.admin("POST", "/changes", {"set": values})

    async def instance(self, name: str) -> dict[str, Any]:
        state = await self.admin("GET", "/state")
        return next(dict(one) for one in state["instances"] if one["name"] == name)

    async def serves(self, decode: str) -> bool:
        state = await self.admin("GET", "/state")
        return any(pair["serves"] for pair in state["pairs"] if pair["decode"] == decode)


class GatewayProcess(AnyGateway):
    """As a process of its own."""

    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        log = (self.folder / "gateway.log").open("ab")
        with log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "serving.gateway", "--run", str(self.folder), stdout=log, stderr=log
            )
        await eventually(self._ready, 60)

    async def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, (self.folder / "gateway.log").read_text()
        return await get(f"{self.url}/readyz") == 200

    async def end(self, number: int = signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()

    async def admin(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await asyncio.to_thread(call, Door.read(self.folder), method, path, body)


class GatewayHere(AnyGateway):
    """In the test's own event loop: what it takes to start a process is most of such a test. Killed, its sockets are reset."""

    gateway: Gateway | None = None

    async def start(self) -> None:
        gateway = Gateway(Service.read(self.folder), self.folder, SystemClock(), random.Random())
        await gateway.start()
        gateway.admin.open(1)
        self.gateway, self._front = gateway, server_of(gateway.api.handle)
        self._listener = listen("127.0.0.1", self.port)
        self._serving = asyncio.create_task(self._front.serve(sockets=[self._listener]))
        work = (gateway.prober.run(), gateway.kv.run(), gateway.admin.desk.run())
        self._background = [asyncio.create_task(one) for one in work]
        await until(lambda: self._front.started and gateway.book.ready, 30)

    async def end(self, number: int = signal.SIGTERM) -> int:
        gateway, self.gateway = self.gateway, None
        if gateway is None:
            return 0
        if number == signal.SIGTERM:
            config = gateway.service.config.gateway
            await Draining(gateway.lifecycle, gateway.status, config, self._front.last_of_connections).run()
        else:
            for listening in self._front.servers:
                listening.close()
            for connection in list(self._front.server_state.connections):
                connection.transport.abort()
        self._front.should_exit = True
        await self._serving
        self._listener.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await gateway.close()
        return 0

    async def admin(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        assert self.gateway is not None
        headers = {"authorization": f"Bearer {Door.read(self.folder).token}"}
        asked = FakeExchange(body or b"", method=method, path=f"/admin/v1{path}", headers=headers)
        await self.gateway.admin.handle(asked)
        assert asked.status == 200, asked.text
        return dict(asked.json)


@contextlib.asynccontextmanager
async def gateways(kind: type[G], folder: Path, legs: dict[str, Leg]) -> AsyncIterator[list[G]]:
    """Two of them, started; killed at the end."""
    made = [kind(folder / f"gateway-{number}", legs, port) for number, port in enumerate(free_ports(2))]
    try:
        await asyncio.gather(*(one.start() for one in made))
        yield made
    finally:
        await asyncio.gather(*(one.end(signal.SIGKILL) for one in made))


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
