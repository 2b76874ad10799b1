"""A small chat server on a thread of its own: it answers by a script, and remembers what it was asked."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import typer

from toolkit.cli.bench import bench

DONE = b"data: [DONE]\n\n"


def event(payload: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def delta(finish: str | None = None, **content: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": content, "finish_reason": finish}]})


def usage(tokens: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens}})


def answer(tokens: int = 3) -> list[bytes]:
    """What OpenAI-compatible servers stream: a role, tokens, a finish_reason, the usage, the end mark."""
    middle = [delta(content=f"t{n}") for n in range(tokens)]
    return [delta(role="assistant", content=""), *middle, delta("stop"), usage(tokens), DONE]


@dataclass
class Script:
    """One answer. pause_s: before each piece. cut: close without the final chunk. hang: never end."""

    pieces: list[bytes] = field(default_factory=answer)
    status: int = 200
    content_type: str = "text/event-stream"
    pause_s: float = 0.0
    cut: bool = False
    hang: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def error(cls, status: int, code: str, headers: tuple[tuple[str, str], ...] = ()) -> "Script":
        body = json.dumps({"error": {"message": f"no: {code}", "code": code}}).encode()
        return cls([body], status, "application/json", headers=headers)


class ChatServer:
    """`script` decides per request body; `ready` and `models` serve the preflight, `metrics` the scraper."""

    def __init__(self) -> None:
        self.script: Callable[[dict[str, Any]], Script] = lambda body: Script()
        self.ready = Script([b"ok"], 200, "text/plain")
        self.models = Script([b'{"object":"list","data":[{"id":"tiny-vlm"}]}'], 200, "application/json")
        self.metrics = Script([b"none"], 404, "text/plain")
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                path, headers, body = await self._request(reader)
                script = {"/readyz": self.ready, "/v1/models": self.models, "/metrics": self.metrics}.get(
                    path
                )
                if script is None:
                    self.bodies.append(json.loads(body))
                    self.headers.append(headers)
                    script = self.script(self.bodies[-1])
                if not await self._answer(writer, script):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return head[0].split()[1], headers, await reader.readexactly(int(headers.get("content-length", 0)))

    async def _answer(self, writer: asyncio.StreamWriter, script: Script) -> bool:
        head = f"HTTP/1.1 {script.status} X\r\ncontent-type: {script.content_type}\r\nx-request-id: r1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in script.headers)
        writer.write(head.encode() + b"transfer-encoding: chunked\r\n\r\n")
        for piece in script.pieces:
            await asyncio.sleep(script.pause_s)
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if script.hang:
            await asyncio.sleep(60)
        if script.cut:
            return False
        writer.write(b"0\r\n\r\n")
        return True


C = TypeVar("C", bound=ChatServer)


@contextmanager
def serving(server: C) -> Iterator[C]:
    """The server on a port and an event loop of its own, in a thread of this process."""
    loop = asyncio.new_event_loop()
    up = threading.Event()
    stop = asyncio.Event()

    async def main() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        up.set()
        await stop.wait()
        listener.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert up.wait(10)
    yield server
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    with serving(ChatServer()) as server:
        yield server


@pytest.fixture
def app() -> typer.Typer:
    """`toolkit bench` by itself."""
    app = typer.Typer()
    app.command()(bench)
    return app


@pytest.fixture
def scripts() -> type[Script]:
    return Script
