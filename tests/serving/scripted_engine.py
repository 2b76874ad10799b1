"""A scripted engine leg: speaks SGLang's chat dialect over a real socket, as each test tells it to.

The same paths meet the real engine in tests/live.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from serving.service import EngineEndpoint

Write = Callable[[bytes], Awaitable[None]]
Script = Callable[["Call", Write], Awaitable[None]]


@dataclass
class Call:
    """One request as the engine saw it."""

    path: str
    body: dict[str, Any]
    closed: asyncio.Event = field(default_factory=asyncio.Event)


def event(document: dict[str, Any] | str) -> bytes:
    data = document.encode() if isinstance(document, str) else orjson.dumps(document)
    return b"data: " + data + b"\n\n"


def delta(
    content: str | None = None, finish: str | None = None, index: int = 0, role: str | None = None
) -> bytes:
    body: dict[str, Any] = {"role": role} if role else {}
    if content is not None:
        body["content"] = content
    return event({"id": "x", "choices": [{"index": index, "delta": body, "finish_reason": finish}]})


def head(status: int = 200, content_type: str = "text/event-stream", length: int | None = None) -> bytes:
    framing = f"content-length: {length}" if length is not None else "transfer-encoding: chunked"
    return f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{framing}\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


LAST_CHUNK = b"0\r\n\r\n"


def json_response(document: object, status: int = 200) -> bytes:
    body = orjson.dumps(document)
    return head(status, "application/json", len(body)) + body


def completion(text: str = "hello", reason: str | None = "stop", tokens: int = 3) -> dict[str, Any]:
    return {
        "id": "x",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}],
        "usage": {"prompt_tokens": 7, "completion_tokens": tokens},
    }


async def answer_well(call: Call, write: Write) -> None:
    """What a healthy leg answers, streamed or whole."""
    if not call.body.get("stream"):
        await write(json_response(completion()))
        return
    await write(head())
    await write(chunk(delta(role="assistant", content="")))
    for word in ("hel", "lo"):
        await write(chunk(delta(word)))
    await write(chunk(delta(finish="stop")))
    await write(chunk(event("[DONE]")) + LAST_CHUNK)


async def never(call: Call, write: Write) -> None:
    """Takes the request and says nothing until the client closes."""
    await call.closed.wait()


class ScriptedEngine:
    """One engine on a free port. `script` answers chat; /ready and /abort_request are built in."""

    def __init__(self, name: str, script: Script = answer_well) -> None:
        self.name = name
        self.script = script
        self.calls: list[Call] = []
        self.aborted: list[str] = []
        self.ready = True
        self.pages: dict[str, object] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def endpoint(self) -> EngineEndpoint:
        role = "prefill" if self.name.startswith("prefill") else "decode"
        boot = 4321 if role == "prefill" else 0
        return EngineEndpoint(
            name=self.name, role=role, url=f"http://127.0.0.1:{self.port}", bootstrap_port=boot
        )

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        raw = await reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode().split("\r\n")
        path = first.split(" ")[1]
        length = next(
            (int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0
        )
        body = await reader.readexactly(length) if length else b""

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        if path == "/ready":
            await write(json_response({}, 200 if self.ready else 503))
            return True
        if path in self.pages:
            await write(json_response(self.pages[path]))
            return True
        if path == "/abort_request":
            self.aborted.append(orjson.loads(body)["rid"])
            await write(json_response({}))
            return True
        call = Call(path, orjson.loads(body))
        self.calls.append(call)
        watch = asyncio.create_task(self._watch(reader, call))
        try:
            await self.script(call, write)
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
        return not call.closed.is_set()

    async def _watch(self, reader: asyncio.StreamReader, call: Call) -> None:
        with contextlib.suppress(ConnectionError):
            if await reader.read(1) == b"":
                call.closed.set()


@contextlib.asynccontextmanager
async def engines(**scripts: Script) -> AsyncIterator[dict[str, ScriptedEngine]]:
    """Started engines by name, as engines(prefill_0=..., decode_0=...)."""
    made = {
        name.replace("_", "-"): ScriptedEngine(name.replace("_", "-"), script)
        for name, script in scripts.items()
    }
    try:
        for engine in made.values():
            await engine.start()
        yield made
    finally:
        for engine in made.values():
            await engine.stop()
