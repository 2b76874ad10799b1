"""The HTTP/1.1 client: connections kept alive, one exchange per connection, nothing hidden from the caller.

Timeouts of an exchange are the caller's (`asyncio.timeout`); only connecting has its own. No redirects, no
cookies, no content decoding, no proxies. A client belongs to one event loop.

When a request is sent again by itself. A kept-alive connection may be closed by the peer at any time.
1. Before writing, the socket itself is asked whether the peer has closed; if so, another connection is used.
   Nothing was sent, so this holds for every method, POST too.
2. If a reused connection ends before any byte of an answer, the peer may or may not have seen the request: it
   is sent once more, on a fresh connection, only when the method is idempotent (RFC 9110). A POST raises
   ConnectionLost.
Nothing is ever sent again after a byte of an answer, or from a fresh connection.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence

from toolkit.core.http.connection import Connection, Flight, Sink
from toolkit.core.http.errors import ConnectFailed, ConnectionLost
from toolkit.core.http.pool import IdlePool
from toolkit.core.http.request import Data, Headers, Request, build_request
from toolkit.core.http.response import Response
from toolkit.core.http.url import Origin

__all__ = ["Flight", "HttpClient", "Request", "Response", "Sink", "build_request"]

CLOSE_WAIT_S = 1.0  # a transport that was aborted is gone within a turn or two of the loop


class HttpClient:
    """Sends requests; owns the connections.

    connect_timeout_s: name resolution, TCP and TLS together. max_idle_per_host: kept-alive connections per
    origin. idle_timeout_s: below the peer's own, or requests meet its close; 4 s because SGLang's uvicorn
    closes after 5. clock: gives `sent_at`, `head_at` and the times of body pieces.
    tls: for https URLs; a default context, made on first use, verifies against the system's certificates.
    high_water_bytes: a Response that holds more unread body stops reading from its socket.
    """

    def __init__(
        self,
        *,
        connect_timeout_s: float = 5.0,
        max_idle_per_host: int = 256,
        idle_timeout_s: float = 4.0,
        clock: Callable[[], float] = time.monotonic,
        tls: ssl.SSLContext | None = None,
        high_water_bytes: int = 262_144,
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._clock = clock
        self._tls = tls
        self._high_water_bytes = high_water_bytes
        self._pool = IdlePool(max_idle_per_host, idle_timeout_s)
        self._busy: set[Connection] = set()
        self._closing: set[Connection] = set()
        self._connecting = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_lost: asyncio.Future[None] | None = None

    @property
    def open_connections(self) -> int:
        """Connections that an exchange uses or that are being made; idle ones are not counted."""
        return len(self._busy) + self._connecting

    @property
    def idle_connections(self) -> int:
        return len(self._pool)

    async def send(
        self, method: str, url: str, headers: Headers = (), body: Data | Sequence[Data] = b""
    ) -> Response:
        """The answer, once its head is there. Cancelling closes the connection.

        Raises ValueError for a request that cannot be put on the wire; ConnectFailed, ConnectionLost,
        ProtocolViolation.
        """
        request = build_request(method, url, headers, body)
        again = False
        while True:
            response = Response(self._high_water_bytes)
            flight = await self._start(request, response, fresh=again)
            response.attach(flight)
            try:
                await response.head_arrived()
            except ConnectionLost:
                if again or not (request.idempotent and flight.reused and flight.untouched):
                    raise
                again = True
            except BaseException:
                flight.abort()
                raise
            else:
                return response

    def send_now(self, request: Request, sink: Sink) -> Flight | None:
        """`send_to` without an await, for whom a turn of the loop is too late. None: no idle connection is at hand."""
        connection = None if self._closed else self._pool.take(request.origin, self._clock())
        if connection is None:
            return None
        self._busy.add(connection)
        return connection.start(request, sink)

    async def send_to(self, request: Request, sink: Sink) -> Flight:
        """Write the request; `sink` is told of the answer straight from the socket's read callback.

        Returns once the request is written, without a turn of the loop when an idle connection is at hand.
        Nothing is sent again by itself. Raises ConnectFailed; all later trouble goes to `sink.ended`.
        """
        return await self._start(request, sink, fresh=False)

    async def close(self) -> None:
        """Drop the idle connections and abort the others; their readers get ConnectionLost or Truncated."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._pool.clear()
        for connection in list(self._busy):
            connection.fail_closed()
        if self._closing:
            self._all_lost = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_lost], timeout=CLOSE_WAIT_S)

    async def _start(self, request: Request, sink: Sink, *, fresh: bool) -> Flight:
        if self._closed:
            raise ConnectFailed("the client is closed")
        flight = None if fresh else self.send_now(request, sink)
        return flight or (await self._connect(request.origin)).start(request, sink)

    async def _connect(self, origin: Origin) -> Connection:
        connection = Connection(self, self._clock, origin)
        self._connecting += 1
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                context = await self._tls_context() if origin.tls else None
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    origin.host,
                    origin.port,
                    ssl=context,
                    server_hostname=origin.host if origin.tls else None,
                )
            if self._closed or not connection.open:
                raise ConnectFailed(f"{origin}: closed while connecting")
        except TimeoutError as error:
            raise ConnectFailed(f"{origin}: no connection within {self._connect_timeout_s:g} s") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that IDNA refuses
            raise ConnectFailed(f"{origin}: {error}") from error
        else:
            self._busy.add(connection)
            return connection
        finally:
            self._connecting -= 1
            if connection not in self._busy:
                connection.abort()
                # uvloop may not call connection_lost for a transport whose create_connection was cancelled.
                self._closing.discard(connection)

    async def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)  # reads files
        return self._tls

    def _expire(self) -> None:
        self._sweep = None
        self._pool.expire(self._clock())
        self._plan_sweep()

    def _plan_sweep(self) -> None:
        if self._sweep is None and len(self._pool) and not self._closed:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_timeout_s, self._expire)

    # --- what connections say (their Owner)

    def released(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if self._closed:
            connection.abort()
        else:
            self._pool.put(connection, self._clock())
            self._plan_sweep()

    def dropped(self, connection: Connection) -> None:
        self._busy.discard(connection)
        self._pool.remove(connection)
        self._closing.add(connection)

    def lost(self, connection: Connection) -> None:
        self._closing.discard(connection)
        if not self._closing and self._all_lost is not None and not self._all_lost.done():
            self._all_lost.set_result(None)
