"""One attempt: the same request to both legs of a prefill/decode pair, answered from decode.

    POST body + rid + bootstrap --> prefill   computes the KV cache, sends it over Mooncake, answers when it is gone
    POST body + rid + bootstrap --> decode    receives the KV cache, generates, streams

(SGLang's own small balancer does the same, mini_lb.py:109.) The legs live and die together: whatever ends the attempt
early, a failed leg, the budget, a client that hung up, closes both connections and sends /abort_request to both engines
at once, because SGLang itself notices a closed connection only every 4 s and keeps a half-dead pair waiting for minutes
(environ.py:751).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from serving.chat import EngineBody, Rendezvous
from serving.guarded import first_leaf, leaves
from serving.service import EngineEndpoint
from serving.stream import Kind, StreamReader, read_whole, refusal
from toolkit.core.clock import Clock
from toolkit.core.errors import ClientGone, EngineFailed, OutOfTime, ToolkitError
from toolkit.core.http.client import HttpClient, Response
from toolkit.core.http.errors import TransportError
from toolkit.core.http.sse import EventSplitter

T = TypeVar("T")
Forward = Callable[[bytes], Awaitable[None]]
Posting = Coroutine[Any, Any, Response]
OnPrefilled = Callable[[], None]
DecodeLeg = Callable[[Posting, asyncio.Task[None]], Awaitable[T]]
MAX_ERROR_BYTES = 64_000
JSON_HEADERS = (("content-type", "application/json"),)
ABORT_TIMEOUT_S = 2.0

EARLY_S = 2.0
ABORT_AGAIN_S = 1.5
"""An abort may overtake its own request: SGLang ignores a rid that it has not registered yet, and then holds the half-made
pair for its own 60 s. An attempt that ended within EARLY_S is therefore aborted once more."""


class LegLost(EngineFailed):
    """The connection to an engine broke; `engine` should be looked at before it gets more work."""

    def __init__(self, message: str, engine: str) -> None:
        super().__init__(message)
        self.engine = engine


@dataclass(frozen=True, slots=True)
class Pair:
    """A prefill and a decode engine that serve a request together."""

    prefill: EngineEndpoint
    decode: EngineEndpoint

    @property
    def name(self) -> str:
        return f"{self.prefill.name}+{self.decode.name}"


@dataclass(frozen=True, slots=True)
class Limits:
    """deadline: monotonic instant by which the first token must be out. stall_s: longest silence of an open stream.
    whole_s: longest non-streamed answer after its prefill."""

    deadline: float
    stall_s: float
    whole_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """An attempt that failed before its first token. then: "retried", or why it was not. Instants on the monotonic clock."""

    pair: Pair
    cause: str
    message: str
    then: str
    dispatched_at: float | None
    ended_at: float
    choice: int


@dataclass(slots=True)
class Progress:
    """What is known of the current attempt; instants on the monotonic clock. Filled in as it goes. `attempts` and `lost` are
    of all attempts."""

    dispatched_at: float | None = None
    prefill_done_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    token_events: int = 0
    rids: tuple[str, ...] = ()  # prefill's, decode's
    room: int | None = None
    choice: int = 0
    pair: Pair | None = None
    attempts: int = 0
    lost: list[Lost] = field(default_factory=list)

    def again(self, pair: Pair) -> None:
        """A new attempt begins; nothing of the one before was seen by anybody."""
        self.pair = pair
        self.attempts += 1
        self.dispatched_at = self.prefill_done_at = self.first_token_at = self.last_token_at = None
        self.gaps_s, self.usage, self.finish_reason, self.token_events = [], {}, None, 0


class Dispatcher:
    """Makes attempts; owns the abort requests that outlive them."""

    def __init__(
        self,
        client: HttpClient,
        clock: Clock,
        rendezvous: Rendezvous,
        on_abort: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._rendezvous = rendezvous
        self._on_abort = on_abort
        self._aborts: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()

    async def stream(
        self,
        pair: Pair,
        body: EngineBody,
        limits: Limits,
        progress: Progress,
        forward: Forward,
        on_prefilled: OnPrefilled = lambda: None,
    ) -> None:
        """Stream the answer through `forward`, whole events only, nothing before the first content token.

        on_prefilled: called when the KV cache has gone to decode. Raises the typed error of whatever ended it early;
        `progress` tells how far it came.
        """
        await self._attempt(
            pair,
            body,
            progress,
            on_prefilled,
            lambda post, _: self._decode_stream(post, pair, limits, progress, forward),
        )

    async def whole(
        self,
        pair: Pair,
        body: EngineBody,
        limits: Limits,
        progress: Progress,
        on_prefilled: OnPrefilled = lambda: None,
    ) -> bytes:
        """The non-streamed answer. Its first token counts as out when the prefill leg has answered."""
        return await self._attempt(
            pair,
            body,
            progress,
            on_prefilled,
            lambda post, prefill: self._decode_whole(post, prefill, pair, limits, progress),
        )

    async def drain(self) -> None:
        """Wait for abort requests under way; second ones are sent now. The dispatcher makes no attempt after this."""
        self._draining.set()
        while self._aborts:
            await asyncio.wait(self._aborts)

    @property
    def open_aborts(self) -> int:
        return len(self._aborts)

    async def _attempt(
        self,
        pair: Pair,
        body: EngineBody,
        progress: Progress,
        on_prefilled: OnPrefilled,
        decode: DecodeLeg[T],
    ) -> T:
        prefill_rid, decode_rid = self._rendezvous.rid(), self._rendezvous.rid()
        room = self._rendezvous.room()
        progress.rids, progress.room = (prefill_rid, decode_rid), room
        progress.dispatched_at = self._clock.monotonic()

        def post(engine: EngineEndpoint, rid: str) -> Posting:
            pieces = body.for_leg(
                progress.choice,
                rid=rid,
                bootstrap_host=pair.prefill.bootstrap_host,
                bootstrap_port=pair.prefill.bootstrap_port,
                bootstrap_room=room,
            )
            return self._post(engine, pieces)

        whole = False
        try:
            async with asyncio.TaskGroup() as group:
                prefill = group.create_task(
                    self._prefill_leg(
                        post(pair.prefill, prefill_rid), pair.prefill.name, progress, on_prefilled
                    )
                )
                answer = await decode(post(pair.decode, decode_rid), prefill)
                whole = True
                prefill.cancel()
            return answer
        except BaseExceptionGroup as failures:
            raise _first(failures) from None
        finally:
            if not whole:
                early = self._clock.monotonic() - progress.dispatched_at < EARLY_S
                self._abort(pair.prefill, prefill_rid, again=early)
                self._abort(pair.decode, decode_rid, again=early)

    async def _prefill_leg(
        self, posting: Posting, name: str, progress: Progress, on_prefilled: OnPrefilled
    ) -> None:
        response = await posting
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
            raise LegLost(f"The connection to {name} broke: {error}.", name) from error
        finally:
            response.close()

    async def _decode_stream(
        self, posting: Posting, pair: Pair, limits: Limits, progress: Progress, forward: Forward
    ) -> None:
        name = pair.decode.name
        loop = asyncio.get_running_loop()
        reader, splitter = StreamReader(name), EventSplitter()
        held: list[bytes] = []
        sending = False
        response: Response | None = None
        try:
            async with asyncio.timeout(self._left(limits.deadline)) as timer:
                response = await posting
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
            raise self._late(progress, limits, pair, sending) from None
        except TransportError as error:
            raise LegLost(f"The connection to {name} broke: {error}.", name) from error
        finally:
            progress.usage = dict(reader.usage or {})
            progress.token_events = reader.token_events
            progress.finish_reason = reader.finish_reason
            if response is not None:
                response.close()

    async def _decode_whole(
        self,
        posting: Posting,
        prefill: asyncio.Task[None],
        pair: Pair,
        limits: Limits,
        progress: Progress,
    ) -> bytes:
        name = pair.decode.name
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
                prefill.add_done_callback(first_token_out)
                try:
                    response = await posting
                    if response.status != 200:
                        raise await _refused(response, name)
                    body = await response.read()
                finally:
                    prefill.remove_done_callback(first_token_out)
            if progress.first_token_at is None:
                progress.first_token_at = self._clock.monotonic()
            document = read_whole(name, body)
            progress.finish_reason = document["choices"][0]["finish_reason"]
            progress.usage = dict(document.get("usage") or {})
            return body
        except TimeoutError:
            raise self._late(progress, limits, pair, sending=False) from None
        except TransportError as error:
            raise LegLost(f"The connection to {name} broke: {error}.", name) from error
        finally:
            if response is not None:
                response.close()

    def _token(self, progress: Progress, at: float) -> None:
        if progress.last_token_at is not None:
            progress.gaps_s.append(at - progress.last_token_at)
        progress.last_token_at = at

    def _late(self, progress: Progress, limits: Limits, pair: Pair, sending: bool) -> ToolkitError:
        if sending:
            return ClientGone(f"The client took nothing for {limits.stall_s:.0f} s.")
        if progress.first_token_at is not None:
            return EngineFailed(f"{pair.decode.name} fell silent in mid-answer.", hop="decode")
        hop = "prefill" if progress.prefill_done_at is None else "first_token"
        return OutOfTime(
            f"The TTFT budget ended in the hop {hop!r} ({pair.name}) before the first token.", hop=hop
        )

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock.monotonic())

    async def _post(self, engine: EngineEndpoint, pieces: tuple[bytes, ...]) -> Response:
        try:
            return await self._client.send("POST", f"{engine.url}/v1/chat/completions", JSON_HEADERS, pieces)
        except TransportError as error:
            raise LegLost(f"{engine.name} cannot be reached: {error}.", engine.name) from error

    def _abort(self, engine: EngineEndpoint, rid: str, again: bool) -> None:
        self._on_abort(engine.name)
        task = asyncio.get_running_loop().create_task(self._keep_aborting(engine, rid, again))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _keep_aborting(self, engine: EngineEndpoint, rid: str, again: bool) -> None:
        await self._send_abort(engine, rid)
        if again:
            with suppress(TimeoutError):
                async with asyncio.timeout(ABORT_AGAIN_S):
                    await self._draining.wait()
            await self._send_abort(engine, rid)

    async def _send_abort(self, engine: EngineEndpoint, rid: str) -> None:
        with suppress(TransportError, TimeoutError):  # a dead engine has nothing left to abort
            async with asyncio.timeout(ABORT_TIMEOUT_S):
                body = orjson.dumps({"rid": rid, "abort_all": False})
                response = await self._client.send("POST", f"{engine.url}/abort_request", JSON_HEADERS, body)
                try:
                    await response.read(MAX_ERROR_BYTES)
                finally:
                    response.close()


async def _refused(response: Response, name: str) -> ToolkitError:
    body = await response.read(MAX_ERROR_BYTES)
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = body.decode("utf-8", "replace")
    return refusal(name, response.status, document)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The most telling of the legs' failures: what the engine said beats a lost connection, which it often causes."""
    told = [leaf for leaf in leaves(failures) if isinstance(leaf, ToolkitError)]
    if not told:
        return first_leaf(failures)
    return min(told, key=lambda leaf: isinstance(leaf, LegLost))
