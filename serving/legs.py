"""The two legs of an attempt on the wire: posting one, and what its answer says.

A leg ends by returning, or by raising the typed error of what ended it. It closes its own connection; aborting is the
attempt's (serving/dispatch.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import orjson

from serving.attempt import LegLost, Limits, Progress
from serving.stream import Kind, StreamReader, read_whole, refusal, usage_of
from toolkit.core.clock import Clock
from toolkit.core.errors import ClientGone, EngineFailed, OutOfTime, ToolkitError
from toolkit.core.http.client import HttpClient, Response
from toolkit.core.http.errors import TransportError
from toolkit.core.http.request import JSON_HEADERS, Data, Headers
from toolkit.core.http.sse import EventSplitter

Forward = Callable[[bytes], Awaitable[None]]
Posting = Callable[[], Awaitable[Response]]
"""Begins to post when it is called: a leg that is cancelled before its first step has begun nothing."""
OnPrefilled = Callable[[], None]
MAX_ERROR_BYTES = 64_000


class Legs:
    """Posts legs and reads what they answer into a Progress."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def post(
        self, name: str, base_url: str, pieces: Sequence[Data], headers: Headers = JSON_HEADERS
    ) -> Response:
        """The head of the answer to a chat completion. name: who is asked. base_url: with /v1. Raises LegLost."""
        try:
            return await self._client.send("POST", f"{base_url}/chat/completions", headers, pieces)
        except TransportError as error:
            raise LegLost(f"{name} cannot be reached.", name, str(error)) from error

    async def prefill(
        self, posting: Posting, name: str, progress: Progress, on_prefilled: OnPrefilled
    ) -> None:
        """Reads its answer to the end: then the KV cache has gone to decode, which on_prefilled is told."""
        response = await posting()
        try:
            if response.status != 200:
                raise await _refused(response, name)
            streamed = (response.header("content-type") or "").startswith("text/event-stream")
            if streamed:
                reader, splitter = StreamReader(name), EventSplitter()
                async for chunk, _ in response.chunks():
                    for event in splitter.feed(chunk):
                        reader.read(event.data)
                reader.end()
            else:
                read_whole(name, await response.read())
            on_prefilled()
            if progress.prefill_done_at is None:
                progress.prefill_done_at = self._clock.monotonic()
        except TransportError as error:
            raise LegLost(f"The connection to {name} broke.", name, str(error)) from error
        finally:
            response.close()

    async def decode_stream(
        self, posting: Posting, name: str, limits: Limits, progress: Progress, forward: Forward
    ) -> None:
        """Streams whole events through `forward`, nothing before the first content token. name: whose answer it is."""
        loop = asyncio.get_running_loop()
        reader, splitter = StreamReader(name), EventSplitter()
        held: list[bytes] = []
        sending = False
        response: Response | None = None
        try:
            async with asyncio.timeout(self._left(limits.deadline)) as timer:
                response = await posting()
                if response.status != 200:
                    raise await _refused(response, name)
                async for chunk, at in response.chunks():
                    for event in splitter.feed(chunk):
                        kind = reader.read(event.data)
                        held.append(event.raw)
                        if kind is Kind.TOKEN:
                            self._token(progress, at)
                    if not held or not (reader.token_events or reader.complete):
                        continue
                    if progress.first_token_at is None:
                        progress.first_token_at = at  # an answer may be empty: its end is its first sign
                        if progress.prefill_done_at is None:
                            progress.prefill_done_at = at  # whose own answer has not said so yet
                    if reader.done:
                        break  # the last piece goes out only once the stream has proven whole
                    sending = True
                    timer.reschedule(loop.time() + limits.stall_s)
                    await forward(b"".join(held))
                    held.clear()
                    sending = False
                    timer.reschedule(loop.time() + limits.stall_s)
                reader.end()
                sending = True
                timer.reschedule(loop.time() + limits.stall_s)
                await forward(b"".join(held))
        except TimeoutError:
            raise self._late(progress, limits, name, sending) from None
        except TransportError as error:
            raise LegLost(f"The connection to {name} broke.", name, str(error)) from error
        finally:
            progress.usage = dict(reader.usage or {})
            progress.token_events = reader.token_events
            progress.finish_reason = reader.finish_reason
            if response is not None:
                response.close()

    async def decode_whole(
        self,
        posting: Posting,
        prefill: asyncio.Task[None] | None,
        name: str,
        limits: Limits,
        progress: Progress,
    ) -> bytes:
        """The answer in one piece; its first token counts as out when the prefill leg has answered, or at its end without one."""
        loop = asyncio.get_running_loop()
        response: Response | None = None

        def first_token_out(_: asyncio.Task[None]) -> None:
            if progress.prefill_done_at is not None:
                progress.first_token_at = progress.prefill_done_at
                with suppress(
                    RuntimeError
                ):  # the answer came in the same turn of the loop: the timer is over
                    timer.reschedule(loop.time() + limits.whole_s)

        try:
            async with asyncio.timeout(self._left(limits.deadline)) as timer:
                if prefill is not None:
                    prefill.add_done_callback(first_token_out)
                try:
                    response = await posting()
                    if response.status != 200:
                        raise await _refused(response, name)
                    body = await response.read()
                finally:
                    if prefill is not None:
                        prefill.remove_done_callback(first_token_out)
            if progress.first_token_at is None:
                progress.first_token_at = self._clock.monotonic()
            document = read_whole(name, body)
            progress.finish_reason = document["choices"][0]["finish_reason"]
            progress.usage = usage_of(name, document)
            return body
        except TimeoutError:
            raise self._late(progress, limits, name, sending=False) from None
        except TransportError as error:
            raise LegLost(f"The connection to {name} broke.", name, str(error)) from error
        finally:
            if response is not None:
                response.close()

    def _token(self, progress: Progress, at: float) -> None:
        if progress.last_token_at is not None:
            progress.gaps_s.append(at - progress.last_token_at)
        progress.last_token_at = at

    def _late(self, progress: Progress, limits: Limits, name: str, sending: bool) -> ToolkitError:
        if sending:
            return ClientGone(f"The client took nothing for {limits.stall_s:.0f} s.")
        if progress.first_token_at is not None:
            return EngineFailed(f"{name} fell silent in mid-answer.", hop="decode")
        hop = "prefill" if progress.prefill_done_at is None else "first_token"
        return OutOfTime(
            f"The TTFT budget ended in the hop {hop!r} ({name}) before the first token.", hop=hop
        )

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock.monotonic())


async def _refused(response: Response, name: str) -> ToolkitError:
    body = await response.read(MAX_ERROR_BYTES)
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = body.decode("utf-8", "replace")
    return refusal(name, response.status, document)
