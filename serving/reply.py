"""What a client is sent: heads that tell what was decided for it, pieces of its answer, or one typed error."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

import orjson

from serving.exchange import Exchange, Headers
from serving.recording import Recording
from toolkit.core.errors import ClientGone, ToolkitError

LAST_WORDS = frozenset({"body_too_large", "body_timeout", "shutting_down"})
"""Errors after which the connection ends: the rest of that body is not worth reading, or this gateway goes."""
TELLS_SPENT = frozenset({"ttft_budget_exceeded", "queue_too_long"})


class Forwarder:
    """Sends event-stream pieces to the client; the head goes with the first."""

    def __init__(
        self,
        exchange: Exchange,
        recording: Recording,
        stall_s: float,
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        self._exchange = exchange
        self._recording = recording
        self._stall_s = stall_s
        self._on_first = on_first

    async def __call__(self, piece: bytes) -> None:
        if not self._exchange.started:
            self._on_first()
            headers = [
                ("content-type", "text/event-stream; charset=utf-8"),
                ("cache-control", "no-cache"),
                *facts(self._recording),
            ]
            await self._exchange.send_head(200, headers)
        if self._recording.result is not None:
            self._recording.result.add(piece)
        async with patience(self._stall_s):
            await self._exchange.send(piece)


async def send_whole(exchange: Exchange, recording: Recording, answer: bytes, stall_s: float) -> None:
    """A non-streamed answer. Raises ClientGone."""
    if recording.result is not None:
        recording.result.add(answer)
    length = ("content-length", str(len(answer)))
    async with patience(stall_s):
        await exchange.send_head(200, [("content-type", "application/json"), length, *facts(recording)])
        await exchange.send(answer)


@contextlib.asynccontextmanager
async def patience(stall_s: float) -> AsyncIterator[None]:
    """Raises ClientGone when the client takes nothing for that long: it must not hold a slot."""
    try:
        async with asyncio.timeout(stall_s):
            yield
    except TimeoutError:
        raise ClientGone(f"The client took nothing for {stall_s:.0f} s.") from None


def decided(recording: Recording) -> list[tuple[str, str]]:
    """Headers that tell a client what was decided for it, as far as it was: errors have them too."""
    headers = [
        ("x-workload-class", recording.workload_class.value),
        ("x-slo-class", recording.promise.slo_class.value),
    ]
    return headers + ([("x-max-tokens", str(recording.max_tokens))] if recording.max_tokens else [])


def facts(recording: Recording) -> list[tuple[str, str]]:
    """The same for an answer, with what was given up for it and whose it is."""
    headers = [("x-request-id", recording.request_id), *decided(recording)]
    if recording.degraded:
        headers.append(("x-toolkit-degraded", ", ".join(map(str, recording.degraded))))
    if recording.simulated and recording.pair:
        headers.append(("x-simulated", "1"))
    served_by = recording.pair.name if recording.pair else None if recording.fallback is None else "fallback"
    return headers + ([("x-served-by", served_by)] if served_by else [])


async def hang_up(exchange: Exchange) -> None:
    """Raises ClientGone once the client has closed."""
    await exchange.disconnected()
    raise ClientGone("The client closed the connection.")


async def tell(
    exchange: Exchange,
    error: ToolkitError,
    request_id: str,
    spent_s: Mapping[str, float] | None = None,
    beside: Headers = (),
) -> None:
    """Send an error: as a response, or, once a stream has begun, as its last event (never followed by [DONE]).

    spent_s: where the time went by hops, told with a late request's error. beside: more headers.
    """
    if isinstance(error, ClientGone):
        return
    told = error.body(request_id)
    if spent_s is not None and error.code.code in TELLS_SPENT:
        told["error"]["spent_ms"] = {hop: round(seconds * 1000, 1) for hop, seconds in spent_s.items()}
    document = orjson.dumps(told)
    if exchange.started:
        await exchange.send(b"data: " + document + b"\n\n")
        await exchange.end()
        return
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(document))),
        ("x-request-id", request_id),
        *beside,
    ]
    if error.retry_after_s is not None:
        headers.append(("retry-after", f"{max(1, round(error.retry_after_s))}"))
    if error.code.code in LAST_WORDS:
        headers.append(("connection", "close"))
    if error.status == 401:
        headers.append(("www-authenticate", "Bearer"))
    await exchange.send_head(error.status, headers)
    await exchange.send(document)
    await exchange.end()
