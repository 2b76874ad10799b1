"""One chat request over the wire, timed where its bytes arrive. Never raises for what a server does: it is recorded.

The answer is read in the socket's own callback: no task, future or queue stands between a token and its time.
"""

import asyncio
import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import orjson

from toolkit.core.clock import Clock
from toolkit.core.http.errors import (
    ConnectFailed,
    ConnectionLost,
    ProtocolViolation,
    TransportError,
    Truncated,
)
from toolkit.core.http.request import Request, build_request
from workloads.answer import Answer, Ending, StreamedAnswer, WholeAnswer, error_ending
from workloads.prepare import Prepared
from workloads.record import GENERATOR_LIMIT, LoadOutcome, LoadSample
from workloads.returning import retry_after_s

if TYPE_CHECKING:
    from toolkit.core.http.client import Flight, HttpClient

CHAT_PATH = "/v1/chat/completions"
MAX_ERROR_BYTES = 65_536
MAX_IDLE = 10_000  # every connection of a peak is kept: a new one costs the request that needs it
TRANSPORT_CODES: tuple[tuple[type[TransportError], str], ...] = (
    (ConnectFailed, "connect_failed"),
    (ConnectionLost, "connection_lost"),
    (Truncated, "truncated"),
    (ProtocolViolation, "protocol_violation"),
)

OWN_LIMITS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS}
)  # what this side ran out of

OnEnd = Callable[[LoadSample], None]


class ChatCaller:
    """Sends prepared requests to one target. The HTTP client belongs to the caller; its clock must be `clock`."""

    def __init__(self, client: "HttpClient", base_url: str, clock: Clock, timeout_s: float) -> None:
        """base_url: http://host:port, without /v1. timeout_s: longest life of one request."""
        self._client = client
        self._url = base_url.rstrip("/") + CHAT_PATH
        self._clock = clock
        self._timeout_s = timeout_s
        self._built: dict[int, Request] = {}  # by the planned request's index
        self._calls: set[_Call] = set()

    def build(self, prepared: Iterable[Prepared]) -> None:
        """Make the bytes of these requests now, so that nothing is composed when they are due."""
        self._built.update({item.planned.index: self._request(item) for item in prepared})

    def begin(self, prepared: Prepared, started_at: float, on_end: OnEnd) -> None:
        """Send one request now; `on_end` gets its record once, whatever happens. started_at: the run's start."""
        request = self._built.pop(prepared.planned.index, None) or self._request(prepared)
        call = _Call(prepared, started_at, self._clock, self._calls.discard, on_end)
        self._calls.add(call)
        call.start(self._client, request, self._timeout_s)

    def waiting(self) -> list[int]:
        """The open requests that have had no token yet, by index, in no order."""
        return [call.index for call in self._calls if call.waits]

    def cut_off(self) -> None:
        """End all open requests; each hands in its record (code `unfinished`)."""
        for call in list(self._calls):
            call.give_up(Ending("unfinished", "still open when the run ended"))

    def _request(self, prepared: Prepared) -> Request:
        return build_request("POST", self._url, prepared.headers, prepared.body)  # big bodies are not copied


class _Call:
    """The record under way: the sink of its own answer."""

    __slots__ = (
        "_answer",
        "_clock",
        "_degraded",
        "_error_body",
        "_first_byte_at",
        "_flight",
        "_on_end",
        "_on_over",
        "_over",
        "_prepared",
        "_request_id",
        "_retry_after_s",
        "_sending",
        "_sent_at",
        "_started_at",
        "_status",
        "_timer",
    )

    def __init__(
        self,
        prepared: Prepared,
        started_at: float,
        clock: Clock,
        on_over: "Callable[[_Call], None]",
        on_end: OnEnd,
    ) -> None:
        self._prepared = prepared
        self._started_at = started_at
        self._clock = clock
        self._on_over = on_over
        self._on_end = on_end
        self._answer: Answer = StreamedAnswer() if prepared.planned.stream else WholeAnswer()
        self._status: int | None = None
        self._request_id: str | None = None
        self._retry_after_s: float | None = None
        self._degraded: str | None = None
        self._sent_at = 0.0
        self._first_byte_at: float | None = None
        self._error_body = b""
        self._flight: Flight | None = None
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    @property
    def index(self) -> int:
        return self._prepared.planned.index

    @property
    def waits(self) -> bool:
        """Whether no token has come."""
        return not self._answer.token_times

    def start(self, client: "HttpClient", request: Request, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._sent_at = self._clock.monotonic()
        self._timer = loop.call_later(
            timeout_s, self.give_up, Ending("client_timeout", f"no end within {timeout_s:g} s")
        )
        self._flight = client.send_now(request, self)
        if self._flight is not None:
            return
        # Ends when the request is written; connecting is what it has to wait for.
        self._sending = loop.create_task(self._send(client, request))

    async def _send(self, client: "HttpClient", request: Request) -> None:
        try:
            self._flight = await client.send_to(request, self)
        except TransportError as error:
            self._finish(LoadOutcome.UNSENT, Ending(_transport_code(error), str(error)))
        else:
            if self._over:  # its end came while the last of it was written
                self._flight.abort()

    def give_up(self, ending: Ending) -> None:
        """The generator ends it, not the server."""
        if self._sending is not None and not self._sending.done():
            self._sending.cancel()
        if self._flight is not None:
            self._flight.abort()
        self._finish(LoadOutcome.BROKEN, ending)

    # --- as a sink

    def head(self, status: int, headers: list[tuple[str, str]], at: float) -> None:
        self._status = status
        self._first_byte_at = at
        self._request_id = next((value for name, value in headers if name == "x-request-id"), None)
        self._degraded = next((value for name, value in headers if name == "x-toolkit-degraded"), None)
        if status != 200:
            told = next((value for name, value in headers if name == "retry-after"), "")
            self._retry_after_s = retry_after_s(told, self._clock.wall()) if told else None

    def data(self, chunk: bytes, at: float) -> None:
        if self._status != 200:
            self._error_body += chunk[: MAX_ERROR_BYTES - len(self._error_body)]
            return
        try:
            self._answer.feed(chunk, at)
        except ProtocolViolation as error:
            self.give_up(Ending(_transport_code(error), str(error)))

    def ended(self, error: TransportError | None, at: float) -> None:  # noqa: ARG002 - the record's end is ours
        if error is not None:
            self._finish(LoadOutcome.BROKEN, Ending(_transport_code(error), str(error)))
        elif self._status != 200:
            self._finish(LoadOutcome.REFUSED, _refusal(self._error_body, self._status))
        else:
            ending = self._answer.ending()
            self._finish(LoadOutcome.COMPLETED if ending.code is None else LoadOutcome.BROKEN, ending)

    def _finish(self, outcome: LoadOutcome, ending: Ending) -> None:
        if self._over:
            return
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._on_over(self)
        self._on_end(self._sample(outcome, ending))

    def _sample(self, outcome: LoadOutcome, ending: Ending) -> LoadSample:
        planned, usage, start = self._prepared.planned, self._answer.usage, self._started_at
        times = tuple([at - start for at in self._answer.token_times])
        return LoadSample(
            index=planned.index,
            workload_class=planned.workload_class,
            slo_class=planned.slo_class,
            intended_s=planned.at_s,
            outcome=outcome,
            ended_s=self._clock.monotonic() - start,
            sent_s=self._sent_at - start,
            first_byte_s=None if self._first_byte_at is None else self._first_byte_at - start,
            token_times_s=times,
            tokens=usage.get("completion_tokens") or len(times),
            prompt_tokens=usage.get("prompt_tokens"),
            finish_reason=self._answer.finish_reason,
            status=self._status,
            code=ending.code,
            message=ending.message,
            request_id=self._request_id,
            attempt=self._prepared.attempt,
            retry_after_s=self._retry_after_s,
            degraded=self._degraded,
        )


def _refusal(body: bytes, status: int | None) -> Ending:
    try:
        content = orjson.loads(body)
    except ValueError:
        content = None
    return error_ending(content, f"http_{status}")


def _transport_code(error: TransportError) -> str:
    if isinstance(error.__cause__, OSError) and error.__cause__.errno in OWN_LIMITS:
        return GENERATOR_LIMIT
    return next((code for kind, code in TRANSPORT_CODES if isinstance(error, kind)), "transport_error")
