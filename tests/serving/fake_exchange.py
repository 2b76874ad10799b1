"""An Exchange in memory: a request put in, an answer read out."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson

from serving.exchange import Head, Headers
from toolkit.core.errors import ClientGone


class FakeExchange:
    """A client in memory. `hang_up()` closes its side."""

    def __init__(
        self,
        body: bytes | dict[str, Any] = b"",
        method: str = "POST",
        path: str = "/v1/chat/completions",
        headers: dict[str, str] | None = None,
        pieces: int = 1,
    ) -> None:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        sent = {"content-length": str(len(raw)), **(headers or {})}
        self.head = Head(method, path, tuple(sent.items()))
        step = max(1, -(-len(raw) // pieces))
        self._pieces = [raw[at : at + step] for at in range(0, len(raw), step)]
        self._closed = asyncio.Event()
        self.started = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.sent: list[bytes] = []
        self.ended = False
        self.first_piece = asyncio.Event()
        self.stalled_body = False

    def hang_up(self) -> None:
        self._closed.set()

    @property
    def hung_up(self) -> bool:
        return self._closed.is_set()

    async def body(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if self._closed.is_set():
                raise ClientGone("closed")
            yield piece
        if self.stalled_body:
            await self._closed.wait()
            raise ClientGone("closed")

    async def send_head(self, status: int, headers: Headers) -> None:
        assert not self.started
        for name, value in headers:
            (name + value).encode("latin-1")  # as a server does: anything but such text would end the answer
        self.started, self.status, self.headers = True, status, dict(headers)

    async def send(self, chunk: bytes) -> None:
        assert self.started and not self.ended
        self.sent.append(chunk)
        self.first_piece.set()

    async def end(self) -> None:
        self.ended = True

    async def disconnected(self) -> None:
        await self._closed.wait()

    @property
    def text(self) -> str:
        return b"".join(self.sent).decode()

    @property
    def json(self) -> Any:
        return orjson.loads(b"".join(self.sent))
