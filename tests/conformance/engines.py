"""A prefill and a decode engine, real or simulated, as a client sees them."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson

from serving.topology import free_ports

_rooms = random.Random(12)
HELLO = [{"role": "user", "content": "Hello world"}]


@dataclass(frozen=True)
class Answer:
    """One leg's whole answer."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """Data of the events, parsed; the last is [DONE]."""
        lines = [part for part in self.body.decode().split("\n\n") if part]
        assert all(line.startswith("data: ") for line in lines)
        return ["[DONE]" if line[6:] == "[DONE]" else orjson.loads(line[6:]) for line in lines]

    @property
    def deltas(self) -> list[Any]:
        return [event["choices"][0] for event in self.events[:-1] if event.get("choices")]


@dataclass(frozen=True)
class Pair:
    """URLs of both, and where decode finds prefill."""

    prefill: str
    decode: str
    bootstrap_port: int
    model: str
    simulated: bool

    def url(self, role: str) -> str:
        return self.prefill if role == "prefill" else self.decode

    def get(self, role: str, path: str) -> httpx.Response:
        return httpx.get(self.url(role) + path, timeout=30)

    def rendezvous(self) -> dict[str, Any]:
        return {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self.bootstrap_port,
            "bootstrap_room": _rooms.randrange(1, 1 << 62),
        }

    def chat(self, **fields: Any) -> dict[str, Any]:
        """A body with a fresh room; `rid` is still to come."""
        return {
            "model": self.model,
            "messages": HELLO,
            "max_tokens": 4,
            "temperature": 0,
            **self.rendezvous(),
            **fields,
        }

    def ask(self, path: str = "/v1/chat/completions", **fields: Any) -> tuple[Answer, Answer]:
        """Both legs' answers to one question."""
        body = self.chat(**fields)

        async def both() -> tuple[Answer, Answer]:
            async with httpx.AsyncClient(timeout=60) as client:
                return await asyncio.gather(
                    post(client, self.prefill + path, {**body, "rid": new_rid()}),
                    post(client, self.decode + path, {**body, "rid": new_rid()}),
                )

        return asyncio.run(both())


def new_rid() -> str:
    return f"conf-{_rooms.getrandbits(64):016x}"


async def post(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> Answer:
    response = await client.post(url, json=body)
    return Answer(response.status_code, response.headers, response.content)


async def abort(client: httpx.AsyncClient, url: str, **fields: Any) -> httpx.Response:
    return await client.post(f"{url}/abort_request", json=fields)


@contextmanager
def simulated(folder: Path, *flags: str, **env: str) -> Iterator[Pair]:
    """A pair of stand-ins as processes, ended afterwards. flags: for both."""
    port, bootstrap, decode_port = free_ports("127.0.0.1", 3)
    with (folder / "engines.log").open("wb") as log:

        def start(role: str, *own: str) -> subprocess.Popen[bytes]:
            argv = [sys.executable, "-m", "serving.engines.simulated", "--role", role, *own, *flags]
            return subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, env={"PATH": "", **env})

        processes = [
            start("prefill", "--port", str(port), "--bootstrap-port", str(bootstrap)),
            start("decode", "--port", str(decode_port)),
        ]
        pair = Pair(
            f"http://127.0.0.1:{port}",
            f"http://127.0.0.1:{decode_port}",
            bootstrap,
            "simulated",
            simulated=True,
        )
        try:
            for url in (pair.prefill, pair.decode):
                wait_ready(url)
            yield pair
        finally:
            for process in processes:
                process.kill()
                process.wait()


def wait_ready(url: str, timeout_s: float = 60.0) -> None:
    """Poll GET /ready."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            if httpx.get(f"{url}/ready", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"{url} is not ready after {timeout_s} s")
