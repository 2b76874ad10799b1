"""uvicorn's HTTP/1.1 protocol with bounds on the head, which httptools has none of.

A head is collected up to HEAD_LIMIT_BYTES before the parser sees it: httptools glues long headers together piece by piece,
in time square in their size, on the event loop. A head that does not come within HEAD_TIMEOUT_S closes the connection.
What follows a body's last piece (trailers, RFC 9112 section 7.1.2) is not kept, and bounded like a head. Of pipelined
requests one waits parsed behind the one at work, the rest as bytes.
A connection that ends while its request's body is still coming is not closed at once: the kernel would answer what is
unread with a reset, which overtakes the answer. The rest is read and dropped first, for a while.
An `Upgrade` that this server does not speak (curl --http2, Java's client: h2c) is hidden from the parser, which would
otherwise stop before the body; the request is then answered over HTTP/1.1, as RFC 9110 section 7.8 allows.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, ClassVar, cast

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from toolkit.core.errors import InvalidRequest, ToolkitError

READ_BYTES = 262_144
"""What the event loop reads at once, at most."""

UPGRADE = re.compile(rb"^upgrade[ \t]*:", re.IGNORECASE | re.MULTILINE)


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    HEAD_LIMIT_BYTES: ClassVar[int] = 65_536
    HEAD_TIMEOUT_S: ClassVar[float] = 10.0
    LINGER_S: ClassVar[float] = 1.0
    DROP_S: ClassVar[float] = 10.0
    DROP_SILENCE_S: ClassVar[float] = 3.0
    """Longest time that the rest of a body is read for nothing, and that nothing of it comes meanwhile."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = bytearray()
        self._in_head = True
        self._refused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._dropping: asyncio.TimerHandle | None = None
        self._drop_ends = self._silence_s = 0.0
        self._open: list[RequestResponseCycle] = []
        self._later = bytearray()
        self._idle_bytes = 0
        self._headed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", _Gentle(transport, self._drops_rest))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._head.clear()
        if self._dropping is not None:
            self._dropping.cancel()
        self._forget()  # uvicorn tells the newest alone: with pipelining that is not the one at work
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Body bytes go straight on; head bytes wait until the head is whole."""
        if self._dropping is not None:
            self._drop_on()
        if self._later:
            self._later += data
            return
        while data and not self._refused and not self.transport.is_closing():
            if not self._in_head:
                self._idle_bytes += len(data)
                super().data_received(data)
                if self._idle_bytes > self.HEAD_LIMIT_BYTES + READ_BYTES:
                    self.transport.close()
                return
            if self.pipeline:  # one at work and one waiting are enough
                self._later += data
                self.flow.pause_reading()
                return
            scanned = len(self._head)
            self._head += data
            end = _head_end(self._head, max(0, scanned - 3))
            if end < 0 or end > self.HEAD_LIMIT_BYTES:
                if len(self._head) > self.HEAD_LIMIT_BYTES:
                    self._refuse(
                        InvalidRequest(
                            f"The head passes {self.HEAD_LIMIT_BYTES} bytes.", code="headers_too_large"
                        )
                    )
                elif self._head_timer is None:
                    self._await_head()
                return
            head, data = bytes(self._head[:end]), bytes(self._head[end:])
            self._head.clear()
            self._head_came()
            self._in_head = False
            super().data_received(UPGRADE.sub(b"x-ignored-upgrade:", head))

    def on_message_begin(self) -> None:
        self._idle_bytes, self._headed = 0, False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headed:  # what comes after the body is nobody's
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._later and not self.transport.is_closing():
            data, self._later = bytes(self._later), bytearray()
            self.data_received(data)

    def send_400_response(self, msg: str) -> None:
        """For what the parser does not take for HTTP; a request that is at work ends as one whose client has gone."""
        answering = any(cycle.response_started and not cycle.response_complete for cycle in self._open)
        self._forget()
        if answering:
            self.transport.close()
        else:
            self._refuse(InvalidRequest(f"{msg.rstrip('.')}: it is not HTTP/1.1."))

    def _forget(self) -> None:
        for cycle in self._open:
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()

    def on_headers_complete(self) -> None:
        self._headed = True
        super().on_headers_complete()
        self._open = [*(cycle for cycle in self._open if not cycle.response_complete), self.cycle]

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        if self._dropping is not None:
            self.transport.close()

    def _drops_rest(self) -> bool:
        """Whether a close has to wait: the answer is out, and the request's body still comes."""
        unread = self.cycle is not None and self.cycle.response_complete and self.cycle.more_body
        if self._dropping is not None or self._in_head or not unread:
            return False
        self._drop(self.DROP_SILENCE_S)
        self.flow.resume_reading()
        return True

    def _drop(self, silence_s: float) -> None:
        """Reads on for nothing: closed at once, what is unread would become a reset, which can overtake the answer."""
        self._drop_ends = self.loop.time() + self.DROP_S
        self._silence_s = silence_s
        self._drop_on()

    def _drop_on(self) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
        left_s = min(self._silence_s, self._drop_ends - self.loop.time())
        self._dropping = self.loop.call_later(max(0.0, left_s), self.transport.close)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.HEAD_TIMEOUT_S, self._head_is_late)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._head:
            self._refuse(InvalidRequest("The head did not come in time.", code="body_timeout"))
        else:
            self.transport.close()

    def _refuse(self, error: ToolkitError) -> None:
        body = orjson.dumps(error.body())
        head = (
            f"HTTP/1.1 {error.status} {error.code.code}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._head.clear()
        self._head_came()
        self._refused = True
        self.transport.write(head.encode("ascii") + body)
        self._drop(self.LINGER_S)


class _Gentle:
    """A transport whose close asks first, and which may be written to after it: what nobody reads is dropped."""

    def __init__(self, transport: asyncio.Transport, waits: Callable[[], bool]) -> None:
        self._transport = transport
        self._waits = waits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if not self._transport.is_closing() and not self._waits():
            self._transport.close()


def _head_end(data: bytearray, start: int) -> int:
    """Where the head ends: behind the first empty line, also where lines end in a bare LF; -1 where there is none yet."""
    ends = [at + len(mark) for mark in (b"\r\n\r\n", b"\n\n") if (at := data.find(mark, start)) >= 0]
    return min(ends, default=-1)
