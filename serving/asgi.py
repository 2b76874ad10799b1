"""The Exchange over ASGI 3 (uvicorn)."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from serving.exchange import Exchange, Head, Headers
from toolkit.core.errors import ClientGone

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Exchange], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class AsgiExchange:
    """One HTTP scope as an Exchange."""

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]
        )
        self.head = Head(scope["method"], scope["path"], headers)
        self.started = False
        self._receive = receive
        self._send = send
        self._ended = False

    async def body(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("The client closed while it was sending the body.")
            more = bool(message.get("more_body", False))
            if message.get("body"):
                yield message["body"]

    async def send_head(self, status: int, headers: Headers) -> None:
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def send(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        if self.started and not self._ended:
            self._ended = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def asgi_app(handle: Handler) -> App:
    """An ASGI application that hands every HTTP request to `handle`. Lifespan and WebSocket scopes are not served."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"unsupported ASGI scope: {scope['type']}")
        await handle(AsgiExchange(scope, receive, send))

    return app
