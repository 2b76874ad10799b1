"""An answer to await: a sink with a bounded buffer."""

import asyncio
from collections import deque

from toolkit.core.http.connection import Flight
from toolkit.core.http.errors import BodyTooLarge, TransportError


class Response:
    """The head, and the body as it arrives. One reader at a time; whoever holds it calls `close()`."""

    __slots__ = (
        "_buffer",
        "_buffered_bytes",
        "_closed",
        "_ended",
        "_error",
        "_flight",
        "_high_water_bytes",
        "_paused",
        "_waiter",
        "head_at",
        "headers",
        "sent_at",
        "status",
    )

    def __init__(self, high_water_bytes: int) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []  # lower-case names
        self.sent_at = 0.0  # clock() when the request was handed to the transport
        self.head_at = 0.0  # clock() when the head arrived
        self._high_water_bytes = high_water_bytes
        self._flight: Flight | None = None
        self._buffer: deque[tuple[bytes, float]] = deque()
        self._buffered_bytes = 0
        self._paused = False
        self._ended = False
        self._closed = False
        self._error: TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case."""
        name = name.lower()
        return next((value for key, value in self.headers if key == name), None)

    def chunks(self) -> "Chunks":
        """Body pieces with the clock() of their arrival: `async for piece, at in response.chunks()`.

        Raises TransportError (Truncated, ProtocolViolation, ...) after the pieces that did arrive. May be
        left and entered again: a piece is given once.
        """
        return Chunks(self)

    async def read(self, limit: int = 64_000_000) -> bytes:
        """The rest of the body at once. Raises BodyTooLarge above `limit` bytes, and what `chunks` raises.

        Unless it returns, the connection is closed.
        """
        pieces: list[bytes] = []
        size_bytes = 0
        try:
            async for piece, _ in self.chunks():
                size_bytes += len(piece)
                if size_bytes > limit:
                    raise BodyTooLarge(f"the body passes {limit} bytes")
                pieces.append(piece)
        except BaseException:
            self.close()
            raise
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Give the answer up: the connection is aborted at once, unless the whole answer was received."""
        self._closed = True
        self._buffer.clear()
        self._buffered_bytes = 0
        if self._flight is not None:
            self._flight.abort()
        self._wake()

    # --- for the client

    def attach(self, flight: Flight) -> None:
        """The exchange that this is the answer of."""
        self._flight = flight
        self.sent_at = flight.sent_at

    async def head_arrived(self) -> None:
        """Wait for the head. Raises TransportError when the exchange ends without one."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self.more()

    # --- for Chunks

    def take(self) -> tuple[bytes, float] | None:
        """The next piece, or None when it is not here yet. Raises StopAsyncIteration at the end, or TransportError."""
        if self._buffer:
            item = self._buffer.popleft()
            self._buffered_bytes -= len(item[0])
            if self._paused and self._buffered_bytes * 2 <= self._high_water_bytes:
                self._paused = False
                if self._flight is not None:
                    self._flight.resume()
            return item
        if self._error is not None and not self._closed:
            raise self._error
        if self._closed or self._ended:
            raise StopAsyncIteration
        return None

    def more(self) -> asyncio.Future[None]:
        """Done when something has changed."""
        assert self._waiter is None or self._waiter.done(), "one reader at a time"
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- as a sink

    def head(self, status: int, headers: list[tuple[str, str]], at: float) -> None:
        self.status, self.headers, self.head_at = status, headers, at
        self._wake()

    def data(self, chunk: bytes, at: float) -> None:
        self._buffer.append((chunk, at))
        self._buffered_bytes += len(chunk)
        if self._buffered_bytes > self._high_water_bytes and not self._paused and self._flight is not None:
            self._paused = True
            self._flight.pause()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def ended(self, error: TransportError | None, at: float) -> None:  # noqa: ARG002 - Sink's signature
        self._ended = True
        self._error = error
        self._wake()


class Chunks:
    """The pieces of one body, as an asynchronous iterator."""

    __slots__ = ("_response",)

    def __init__(self, response: Response) -> None:
        self._response = response

    def __aiter__(self) -> "Chunks":
        return self

    async def __anext__(self) -> tuple[bytes, float]:
        response = self._response
        while (item := response.take()) is None:
            await response.more()  # one future deep: this is awaited for every event of every stream
        return item
