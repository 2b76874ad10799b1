"""One chat request from its head to its one outcome."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import orjson

from serving import chat
from serving.access.classify import classify
from serving.access.prepare import Access, PreparedImages
from serving.access.room import Held, Room
from serving.answer import Answerer
from serving.config import BODY_COPIES, ServeConfig
from serving.dispatch import Limits
from serving.exchange import Exchange
from serving.guarded import guarded
from serving.keys import Keys
from serving.lifted import lighten
from serving.recording import Recording
from serving.result import Result
from serving.schedule.admit import Admission, Moves
from serving.tokenizer.counting import TextCounter
from toolkit.core.clock import Clock
from toolkit.core.errors import (
    Busy,
    ClientGone,
    EngineUnavailable,
    InvalidRequest,
    NotFound,
    OutOfTime,
    TooLarge,
    ToolkitError,
)
from toolkit.core.sample import Sample, SloClass, WorkloadClass

log = logging.getLogger("toolkit.gateway")

FREE_BODY_BYTES = 256_000
"""A body up to this size is read whatever else is in memory: text never waits behind images. The seats bound it."""

SLOWEST_TOKENS_PER_S = 2.0
"""A non-streamed answer that comes slower than this after its prefill is taken for stuck."""

OnSample = Callable[[Sample, list[float]], None]
KeepResult = Callable[[Result, Sample], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the lifecycle works with; owned by the gateway."""

    config: ServeConfig
    model: str
    vocabulary: int | None  # size, where the model's folder tells it
    tokens: TextCounter
    access: Access
    bodies: Room
    admission: Admission
    answerer: Answerer
    keys: Keys
    clock: Clock
    on_sample: OnSample
    keep_result: KeepResult | None = None


class Lifecycle:
    """Runs chat requests. Every request that arrives ends in exactly one Sample, and gives back all it took."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._entering: dict[str, asyncio.Future[Busy | None]] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self.stopping = False
        self._cutting = False

    @property
    def open_requests(self) -> int:
        return len(self._tasks)

    async def idle(self, timeout_s: float) -> None:
        """Wait until no request is open, at most that long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def cut(self) -> None:
        """End every open request with a typed error (shutting_down)."""
        self._cutting = True
        for task in self._tasks:
            task.cancel()

    async def run(self, exchange: Exchange) -> None:
        """Serve one chat request; never raises but for cancellation from outside."""
        parts = self._parts
        now = parts.clock.monotonic()
        default = parts.config.default_slo_class
        recording = Recording(
            f"req-{uuid.uuid4().hex}",
            now,
            parts.clock.wall(),
            chat.Promise(default, parts.config.budget_s(default)),
        )
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        error: ToolkitError | None = None
        try:
            try:
                await self._seated(exchange, recording)
            except asyncio.CancelledError:
                if not self._cutting:
                    error = EngineUnavailable("The gateway was stopped in mid-request.", code="shutting_down")
                    raise
                task.uncancel()
                error = EngineUnavailable("The gateway is stopping.", code="shutting_down", retry_after_s=1.0)
            except ToolkitError as failure:
                error = failure
            except Exception as failure:
                log.exception("request %s failed inside the gateway", recording.request_id)
                error = ToolkitError(f"The gateway failed: {type(failure).__name__}.")
            if error is not None:
                with contextlib.suppress(ClientGone):
                    async with patience(parts.config.stream_stall_s):
                        await tell(exchange, error, recording.request_id)
        finally:
            self._tasks.discard(task)
            sample = recording.finish(parts.clock.monotonic(), error, parts.model)
            parts.on_sample(sample, recording.progress.gaps_s)
            answered = recording.progress.first_token_at is not None
            if parts.keep_result is not None and recording.result is not None and answered:
                parts.keep_result(recording.result, sample)

    async def _seated(self, exchange: Exchange, recording: Recording) -> None:
        parts = self._parts
        head = exchange.head
        recording.tenant = parts.keys.name_of(head.header("authorization"))
        budgets: Mapping[SloClass, float] = {slo: parts.config.budget_s(slo) for slo in SloClass}
        recording.promise = chat.promise(
            head.header("x-slo-class"),
            head.header("x-ttft-budget-ms"),
            parts.config.default_slo_class,
            budgets,
        )
        if self.stopping:
            raise EngineUnavailable("The gateway is stopping.", code="shutting_down", retry_after_s=1.0)
        key = recording.request_id
        parts.admission.arrive(key, recording.promise.slo_class, recording.arrived, recording.deadline)
        try:
            await self._serve(exchange, recording)
            self._answered(recording)
        except ToolkitError as error:
            if error.code.code == "engine_busy" or isinstance(error, OutOfTime):
                parts.admission.overloaded(key, parts.clock.monotonic())
            raise
        finally:
            self._move(parts.admission.leave(key, parts.clock.monotonic()))

    def _answered(self, recording: Recording) -> None:
        """The admission learns from first tokens when they come, or, of an answer in one piece, at its end."""
        admission, now, progress = self._parts.admission, self._parts.clock.monotonic(), recording.progress
        if progress.lost:  # their time is no measure of load, a refusal is
            if any(one.cause == "busy" for one in progress.lost):
                admission.overloaded(recording.request_id, now)
            return
        self._move(admission.answered(recording.request_id, progress.first_token_at or now, now))

    async def _serve(self, exchange: Exchange, recording: Recording) -> None:
        async with self._parts.bodies.hold(FREE_BODY_BYTES) as room:
            request = await self._request(exchange, recording, room)
            body = await guarded(self._package(recording, request, room), hang_up(exchange))
            del request  # the images as they came: from here on the engine's body alone is held
            await guarded(self._answer(exchange, recording, body), hang_up(exchange))

    async def _request(self, exchange: Exchange, recording: Recording, room: Held) -> chat.ChatRequest:
        config = self._parts.config.gateway
        body = await self._read_body(exchange, recording, room)
        light = lighten(body)
        if len(light.text) <= config.max_text_bytes and light.values_bytes > FREE_BODY_BYTES:
            await self._room(room, BODY_COPIES * len(body) + light.values_bytes, recording)
        request = chat.parse(light, self._parts.vocabulary, config.allowed_fields, config.max_text_bytes)
        recording.stream, recording.choices = request.stream, request.choices
        recording.workload_class = provisional_class(request)
        self._parts.admission.sort(
            recording.request_id, recording.workload_class, self._parts.clock.monotonic()
        )
        return request

    async def _read_body(self, exchange: Exchange, recording: Recording, room: Held) -> bytearray:
        """The body; what is larger than a text waits on the socket until there is room for all of it. That wait is not
        the client's fault, so it counts for the TTFT budget and not for the upload's time."""
        config, clock = self._parts.config.gateway, self._parts.clock
        declared = exchange.head.header("content-length")
        size = int(declared) if declared is not None and declared.isdigit() else None
        if size is not None and size > config.max_body_bytes:
            raise TooLarge(f"The body has {declared} bytes; the limit is {config.max_body_bytes}.")
        most = BODY_COPIES * (config.max_body_bytes if size is None else size)
        pieces = bytearray()
        try:
            async with (
                asyncio.timeout(max(0.0, recording.deadline - clock.monotonic())) as budget,
                asyncio.timeout(config.body_timeout_s) as upload,
            ):
                async for piece in exchange.body():
                    pieces += piece
                    if len(pieces) > config.max_body_bytes:
                        raise TooLarge(f"The body passes the limit of {config.max_body_bytes} bytes.")
                    since = clock.monotonic()
                    await room.reach(most if BODY_COPIES * len(pieces) > FREE_BODY_BYTES else 0)
                    upload.reschedule((upload.when() or 0.0) + clock.monotonic() - since)
        except TimeoutError:
            if room.waiting:
                raise no_room(recording.promise.budget_s) from None
            if budget.expired():
                raise chat.out_of_time("body", recording.promise.budget_s) from None
            raise InvalidRequest(
                f"The body did not arrive within {config.body_timeout_s:.0f} s.", code="body_timeout"
            ) from None
        recording.body_read = clock.monotonic()
        return pieces

    async def _package(self, recording: Recording, request: chat.ChatRequest, room: Held) -> chat.EngineBody:
        """What the engines get."""
        parts = self._parts
        if request.model not in ("", parts.model):
            raise NotFound(
                f"The model {request.model!r:.100} is not served here; this gateway serves {parts.model!r}.",
                param="model",
            )
        prepared = await self._prepare(recording, request)
        await self._count(recording, request, prepared)
        body = chat.compose(
            request, [image.data_uri for image in prepared.images], recording.max_tokens, parts.model
        )
        await self._room(room, len(body.open_json), recording)
        room.keep(len(body.open_json))
        return body

    async def _room(self, room: Held, size_bytes: int, recording: Recording) -> None:
        """Waits for room as long as the request's budget lets it. Raises Busy."""
        try:
            async with asyncio.timeout(max(0.0, recording.deadline - self._parts.clock.monotonic())):
                await room.reach(size_bytes)
        except TimeoutError:
            raise no_room(recording.promise.budget_s) from None

    async def _answer(self, exchange: Exchange, recording: Recording, body: chat.EngineBody) -> None:
        await self._wait_for_slot(recording)
        await self._dispatch(exchange, recording, body)

    async def _prepare(self, recording: Recording, request: chat.ChatRequest) -> PreparedImages:
        try:
            prepared = await self._parts.access.prepare(
                [slot.url for slot in request.images], recording.deadline
            )
        except OutOfTime as error:
            raise chat.out_of_time(error.hop or "prepare", recording.promise.budget_s) from error
        if self._parts.keep_result is not None:
            recording.result = Result(request, prepared.digests)
        recording.images = tuple(image.record for image in prepared.images)
        recording.fetched, recording.prepared = prepared.fetched_at, prepared.prepared_at
        return prepared

    async def _count(self, recording: Recording, request: chat.ChatRequest, prepared: PreparedImages) -> None:
        config = self._parts.config
        left_s = recording.deadline - self._parts.clock.monotonic()
        text = await self._parts.tokens.of(request.document, len(request.images), request.text_bytes, left_s)
        recording.text_tokens, recording.tokens_counted = text.tokens, text.exact
        recording.image_tokens = sum(image.record.tokens for image in prepared.images)
        sizes = [(image.record.width, image.record.height) for image in prepared.images]
        recording.workload_class = classify(sizes, recording.text_tokens, config.access.high_res_pixels)
        recording.max_tokens = request.max_tokens or config.default_max_tokens.of(recording.workload_class)

    async def _wait_for_slot(self, recording: Recording) -> None:
        parts = self._parts
        slot = self._entering[recording.request_id] = asyncio.get_running_loop().create_future()
        try:
            self._move(
                parts.admission.prepared(
                    recording.request_id,
                    recording.workload_class,
                    recording.tokens,
                    parts.clock.monotonic(),
                )
            )
            async with asyncio.timeout(max(0.0, recording.deadline - parts.clock.monotonic())):
                refused = await slot
            if refused is not None:
                raise refused
        except TimeoutError:
            raise chat.out_of_time("wait", recording.promise.budget_s) from None
        finally:
            del self._entering[recording.request_id]
        recording.admitted = parts.clock.monotonic()

    def _move(self, moves: Moves) -> None:
        for key, refusal in [*((key, None) for key in moves.entered), *moves.refused]:
            slot = self._entering.get(key)
            if slot is not None and not slot.done():
                slot.set_result(refusal)

    async def _dispatch(self, exchange: Exchange, recording: Recording, body: chat.EngineBody) -> None:
        parts = self._parts
        config = parts.config
        whole_s = min(
            config.answer_timeout_s, config.stream_stall_s + recording.max_tokens / SLOWEST_TOKENS_PER_S
        )
        limits = Limits(recording.deadline, config.stream_stall_s, whole_s)
        if recording.stream:
            forward = Forwarder(exchange, recording, limits.stall_s, lambda: self._answered(recording))
            await parts.answerer.stream(body, recording.choices, limits, recording.progress, forward)
        else:
            answer = await parts.answerer.whole(body, recording.choices, limits, recording.progress)
            if recording.result is not None:
                recording.result.add(answer)
            length = ("content-length", str(len(answer)))
            async with patience(limits.stall_s):
                await exchange.send_head(
                    200, [("content-type", "application/json"), length, *facts(recording)]
                )
                await exchange.send(answer)
        async with patience(limits.stall_s):
            await exchange.end()


def no_room(budget_s: float) -> Busy:
    """The 429 of a request whose body found no room in memory in time."""
    return Busy(
        f"The gateway's memory for request bodies was taken by others for {budget_s:.1f} s; send smaller images,"
        " or fewer at a time.",
        retry_after_s=min(30.0, max(1.0, budget_s)),
    )


def provisional_class(request: chat.ChatRequest) -> WorkloadClass:
    """The class as far as it shows before any image was looked at."""
    if not request.images:
        return WorkloadClass.TEXT_ONLY
    return WorkloadClass.IMAGE_SHORT if len(request.images) == 1 else WorkloadClass.MULTI_IMAGE_LONG


class Forwarder:
    """Sends event-stream pieces to the client; the head goes with the first."""

    def __init__(
        self, exchange: Exchange, recording: Recording, stall_s: float, on_first: Callable[[], None]
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


@contextlib.asynccontextmanager
async def patience(stall_s: float) -> AsyncIterator[None]:
    """Raises ClientGone when the client takes nothing for that long: it must not hold a slot."""
    try:
        async with asyncio.timeout(stall_s):
            yield
    except TimeoutError:
        raise ClientGone(f"The client took nothing for {stall_s:.0f} s.") from None


def facts(recording: Recording) -> list[tuple[str, str]]:
    """Headers that tell a client what was decided for it."""
    headers = [
        ("x-request-id", recording.request_id),
        ("x-workload-class", recording.workload_class.value),
        ("x-slo-class", recording.promise.slo_class.value),
        ("x-max-tokens", str(recording.max_tokens)),
    ]
    return headers + ([("x-served-by", recording.pair.name)] if recording.pair else [])


async def hang_up(exchange: Exchange) -> None:
    """Raises ClientGone once the client has closed."""
    await exchange.disconnected()
    raise ClientGone("The client closed the connection.")


async def tell(exchange: Exchange, error: ToolkitError, request_id: str) -> None:
    """Send an error: as a response, or, once a stream has begun, as its last event (never followed by [DONE])."""
    if isinstance(error, ClientGone):
        return
    document = orjson.dumps(error.body(request_id))
    if exchange.started:
        await exchange.send(b"data: " + document + b"\n\n")
        await exchange.end()
        return
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(document))),
        ("x-request-id", request_id),
    ]
    if error.retry_after_s is not None:
        headers.append(("retry-after", f"{max(1, round(error.retry_after_s))}"))
    if error.code.code in ("body_too_large", "body_timeout"):
        headers.append(("connection", "close"))  # the rest of that body is not worth reading
    if error.status == 401:
        headers.append(("www-authenticate", "Bearer"))
    await exchange.send_head(error.status, headers)
    await exchange.send(document)
    await exchange.end()
