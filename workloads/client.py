"""One chat request over the wire, timed where its bytes arrive. Never raises for what a server does: it is recorded."""

import asyncio
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
from workloads.answer import Ending, StreamedAnswer, WholeAnswer, error_ending
from workloads.prepare import Prepared
from workloads.record import LoadOutcome, LoadSample

if TYPE_CHECKING:
    from toolkit.core.http.client import HttpClient, Response

CHAT_PATH = "/v1/chat/completions"
MAX_ERROR_BYTES = 65_536
TRANSPORT_CODES: tuple[tuple[type[TransportError], str], ...] = (
    (ConnectFailed, "connect_failed"),
    (ConnectionLost, "connection_lost"),
    (Truncated, "truncated"),
    (ProtocolViolation, "protocol_violation"),
)


class ChatCaller:
    """Sends prepared requests to one target. The HTTP client belongs to the caller."""

    def __init__(self, client: "HttpClient", base_url: str, clock: Clock, timeout_s: float) -> None:
        """base_url: http://host:port, without /v1. timeout_s: longest life of one request."""
        self._client = client
        self._url = base_url.rstrip("/") + CHAT_PATH
        self._clock = clock
        self._timeout_s = timeout_s

    async def ask(self, prepared: Prepared, started_at: float) -> LoadSample:
        """Send one request now and read its answer to the end. started_at: the run's start on the clock.

        Cancelled by the driver when the run ends, it still returns its record (code `unfinished`).
        """
        call = _Call(prepared, started_at, self._clock)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._exchange(call)
        except TimeoutError:
            call.failed(LoadOutcome.BROKEN, Ending("client_timeout", f"no end within {self._timeout_s:g} s"))
        except TransportError as error:
            outcome = LoadOutcome.UNSENT if isinstance(error, ConnectFailed) else LoadOutcome.BROKEN
            call.failed(outcome, Ending(_transport_code(error), str(error)))
        except asyncio.CancelledError:
            call.failed(LoadOutcome.BROKEN, Ending("unfinished", "still open when the run ended"))
        return call.sample()

    async def _exchange(self, call: "_Call") -> None:
        prepared = call.prepared
        response = await self._client.send("POST", self._url, prepared.headers, prepared.body)
        try:
            call.headed(response)
            if response.status != 200:
                call.refused(response.status, await response.read(MAX_ERROR_BYTES))
                return
            async for chunk, arrived_at in response.chunks():
                call.received(chunk, arrived_at)
            call.answered()
        finally:
            response.close()


class _Call:
    """The record under way."""

    def __init__(self, prepared: Prepared, started_at: float, clock: Clock) -> None:
        self.prepared = prepared
        self._started_at = started_at
        self._clock = clock
        self._sent_at = clock.monotonic()
        self._answer = StreamedAnswer() if prepared.planned.stream else WholeAnswer()
        self._status: int | None = None
        self._request_id: str | None = None
        self._first_byte_at: float | None = None
        self._outcome = LoadOutcome.COMPLETED
        self._ending = Ending(None)

    def headed(self, response: "Response") -> None:
        self._status = response.status
        self._request_id = response.header("x-request-id")
        self._first_byte_at = response.head_at

    def received(self, chunk: bytes, arrived_at: float) -> None:
        self._answer.feed(chunk, arrived_at)

    def refused(self, status: int, body: bytes) -> None:
        try:
            content = orjson.loads(body)
        except ValueError:
            content = None
        self.failed(LoadOutcome.REFUSED, error_ending(content, f"http_{status}"))

    def answered(self) -> None:
        ending = self._answer.ending()
        if ending.code is not None:
            self.failed(LoadOutcome.BROKEN, ending)

    def failed(self, outcome: LoadOutcome, ending: Ending) -> None:
        self._outcome, self._ending = outcome, ending

    def sample(self) -> LoadSample:
        planned, usage = self.prepared.planned, self._answer.usage
        times = tuple(at - self._started_at for at in self._answer.token_times)
        return LoadSample(
            index=planned.index,
            workload_class=planned.workload_class,
            slo_class=planned.slo_class,
            intended_s=planned.at_s,
            outcome=self._outcome,
            ended_s=self._clock.monotonic() - self._started_at,
            sent_s=self._sent_at - self._started_at,
            first_byte_s=None if self._first_byte_at is None else self._first_byte_at - self._started_at,
            token_times_s=times,
            tokens=usage.get("completion_tokens") or len(times),
            prompt_tokens=usage.get("prompt_tokens"),
            finish_reason=self._answer.finish_reason,
            status=self._status,
            code=self._ending.code,
            message=self._ending.message,
            request_id=self._request_id,
        )


def _transport_code(error: TransportError) -> str:
    return next((code for kind, code in TRANSPORT_CODES if isinstance(error, kind)), "transport_error")
