"""One connection and the exchange on it. Everything of an answer is told from `data_received`, with its time.

    idle --start--> exchanging --answer complete, reusable--> idle
                        |--answer complete, not reusable----> gone
                        |--peer closed, violation, abort----> gone

No task, queue or future stands between the socket and the sink.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Protocol, cast

from toolkit.core.http.body import Body
from toolkit.core.http.errors import ConnectionLost, Phase, ProtocolViolation, TransportError, Truncated
from toolkit.core.http.parser import AnswerParser
from toolkit.core.http.request import Request
from toolkit.core.http.url import Origin


class Sink(Protocol):
    """Who listens to one answer. Called from the event loop's read callback: be quick, do not raise.

    `head` once, `data` any number of times, `ended` once and last (error None: complete). `at` is the clock
    when the bytes, or the end, arrived. Nothing is called after `Flight.abort()`.
    """

    def head(self, status: int, headers: list[tuple[str, str]], at: float) -> None: ...

    def data(self, chunk: bytes, at: float) -> None: ...

    def ended(self, error: TransportError | None, at: float) -> None: ...


class Owner(Protocol):
    """Who holds the connections."""

    def released(self, connection: "Connection") -> None:
        """Its exchange is over and another may start."""

    def dropped(self, connection: "Connection") -> None:
        """No exchange will start on it again; the transport is closing."""

    def lost(self, connection: "Connection") -> None:
        """The transport is closed."""


class Flight:
    """The caller's hold on one exchange; all methods do nothing once it is over."""

    __slots__ = ("_connection", "reused", "sent_at", "untouched")

    def __init__(self, connection: "Connection", reused: bool) -> None:
        self._connection: Connection | None = connection
        self.reused = reused  # the connection had carried another exchange before
        self.sent_at = 0.0  # clock() once the whole request was handed to the transport
        self.untouched = True  # over without a byte of an answer

    @property
    def over(self) -> bool:
        return self._connection is None

    def abort(self) -> None:
        """Close the connection now, whatever is on it; the sink hears nothing more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def pause(self) -> None:
        """Read no more from the socket, so that the peer feels it."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Read again."""
        if self._connection is not None:
            self._connection.resume()

    def land(self, untouched: bool) -> None:
        """The connection's word that the exchange is over."""
        self._connection = None
        self.untouched = untouched


class Connection(asyncio.Protocol):
    """An asyncio protocol for one exchange after another."""

    __slots__ = (
        "_body",
        "_clock",
        "_flight",
        "_owner",
        "_parser",
        "_paused",
        "_poll",
        "_sink",
        "_transport",
        "_used",
        "_writing",
        "idle_since",
        "origin",
    )

    def __init__(self, owner: Owner, clock: Callable[[], float], origin: Origin) -> None:
        self._owner = owner
        self._clock = clock
        self._transport: asyncio.Transport | None = None  # None before it is open and after it is given up
        self._poll = select.poll()
        self._parser: AnswerParser | None = None
        self._body: Body | None = None  # the parser's, once the head is there: saves a step per read
        self._flight: Flight | None = None
        self._sink: Sink | None = None
        self._paused = False
        self._writing = False
        self._used = False
        self.origin = origin
        self.idle_since = 0.0  # clock() of its return to the pool

    @property
    def open(self) -> bool:
        return self._transport is not None

    def quiet(self) -> bool:
        """Whether the peer sent nothing, not even its FIN, since the last answer.

        Asks the socket itself: the event loop may not have looked yet.
        """
        return self._transport is not None and not self._poll.poll(0)

    def start(self, request: Request, sink: Sink) -> Flight:
        """Write the request; the sink hears the answer. The connection must be open and idle."""
        transport = self._transport
        assert transport is not None
        assert self._flight is None
        flight = Flight(self, self._used)
        self._used = True
        self._flight, self._sink = flight, sink
        self._parser, self._body = AnswerParser(request.method), None
        for piece in request.wire:
            transport.write(piece)
        flight.sent_at = self._clock()
        return flight

    def abort(self) -> None:
        """Close now; what is unsent or unread is lost, and no sink is told."""
        self._flight = self._sink = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
            self._owner.dropped(self)

    def fail_closed(self) -> None:
        """The client closes: abort, and tell the sink."""
        within_body = self._body is not None
        why = "the client was closed"
        self._end(Truncated(why) if within_body else ConnectionLost(why), self._clock())

    def pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(
            high=1, low=0
        )  # `_writing` exact; 0 would never resume over TLS
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def pause_writing(self) -> None:
        self._writing = True

    def resume_writing(self) -> None:
        self._writing = False

    def data_received(self, data: bytes) -> None:
        at = self._clock()
        body = self._body
        sink = self._sink
        if sink is None:  # idle: an answer that nobody asked for
            self.abort()
            return
        try:
            if body is not None:
                payload = body.feed(data)
            else:
                parser = self._parser
                assert parser is not None
                payload = parser.feed(data)
                if parser.head is None:
                    return
                body = self._body = parser.body
                sink.head(parser.head.status, parser.head.headers, at)
        except ProtocolViolation as error:
            self._end(error, at)
            return
        if payload and self._sink is sink:  # the sink may have aborted on the head
            sink.data(payload, at)
        if body is not None and body.done and self._sink is sink:
            self._end(None, at)

    def eof_received(self) -> None:
        self._closed(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(exc)
        self._owner.lost(self)

    # --- ends

    def _closed(self, exc: Exception | None) -> None:
        """The peer ended the connection, cleanly (None) or not."""
        if self._sink is None:
            self.abort()
            return
        error: TransportError | None = None
        parser = self._parser
        assert parser is not None
        try:
            if exc is None:
                parser.eof()
            elif parser.head is not None:
                error = Truncated(f"the connection broke inside the body: {exc}")
            else:
                phase: Phase = "write" if self._writing else "head"
                error = ConnectionLost(f"the connection broke before the head of the answer: {exc}", phase)
        except TransportError as incomplete:
            error = incomplete
            if self._writing and parser.untouched:
                error.phase = "write"
        if error is not None and exc is not None:
            error.__cause__ = exc
        self._end(error, self._clock(), reusable=False)

    def _end(self, error: TransportError | None, at: float, *, reusable: bool = True) -> None:
        """The exchange is over. The connection is freed first: the sink may start the next one at once."""
        sink, flight, parser = self._sink, self._flight, self._parser
        self._sink = self._flight = self._parser = self._body = None
        if flight is not None and parser is not None:
            flight.land(parser.untouched)
        if reusable and error is None and parser is not None and parser.reusable and not self._writing:
            self.resume()
            self._owner.released(self)
        else:
            self.abort()
        if sink is not None:
            sink.ended(error, at)
