"""The least of HTTP that the stand-in needs, over ASGI: a request with its body, an answer in pieces, an end of the client."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qs

import orjson

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
MARK = (b"x-simulated", b"1")
JSON = "application/json"
ABORT = "simulated.abort"
"""The ASGI extension by which a listener lets a request break off its connection."""


class Gone(Exception):
    """The client closed."""


class Call:
    """One request and its answer. status: what was answered, 0 before."""

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.status = 0
        self._query = scope["query_string"]
        self._abort: Callable[[], None] | None = scope.get("extensions", {}).get(ABORT, {}).get("abort")
        self._receive = receive
        self._send = send

    def query(self, name: str) -> str | None:
        values = parse_qs(self._query.decode("latin-1")).get(name)
        return values[0] if values else None

    async def body(self) -> bytes:
        """Raises Gone."""
        pieces: list[bytes] = []
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            pieces.append(message.get("body", b""))
            more = bool(message.get("more_body", False))
        return b"".join(pieces)

    async def answer(self, status: int, body: bytes = b"", content_type: str = "") -> None:
        await self._head(status, [(b"content-length", str(len(body)).encode())], content_type)
        await self._send({"type": "http.response.body", "body": body})

    async def json(self, document: object, status: int = 200) -> None:
        await self.answer(status, orjson.dumps(document), JSON)

    async def begin_events(self) -> None:
        await self._head(200, (), "text/event-stream; charset=utf-8")

    async def event(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def gone(self) -> None:
        """Return once the client has closed; after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def abort(self) -> None:
        """Break the connection off."""
        if self._abort is not None:
            self._abort()

    async def _head(self, status: int, headers: Sequence[tuple[bytes, bytes]], content_type: str) -> None:
        self.status = status
        kind = [(b"content-type", content_type.encode())] if content_type else []
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [MARK, *kind, *headers]}
        )


CallT = TypeVar("CallT", bound=Call)


def app(handle: Callable[[CallT], Awaitable[None]], kind: type[CallT]) -> App:
    """kind: how calls are answered; Call for the plain way."""

    async def asgi(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"unsupported ASGI scope: {scope['type']}")
        with suppress(Gone):
            await handle(kind(scope, receive, send))

    return asgi
