"""One chat request from its head to its one outcome."""

import asyncio
import contextlib
import hmac
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from serving import chat
from serving.access.classify import classify
from serving.access.fit import fit
from serving.access.grid import ImageGrid
from serving.access.prepare import Access, PreparedImages
from serving.access.room import Held, Room
from serving.affinity import key_of
from serving.answer import Answerer
from serving.attempt import Limits
from serving.config import ServeConfig
from serving.engine_body import EngineBody, compose
from serving.exchange import Exchange
from serving.fallback import Fallback
from serving.guarded import guarded
from serving.hold import Hold
from serving.instances import Want
from serving.intake import FREE_BODY_BYTES, Intake
from serving.keys import Keys
from serving.promise import Promise, promise
from serving.recording import Recording
from serving.reply import Forwarder, hang_up, patience, send_whole, tell
from serving.result import Result
from serving.schedule.admit import Admission, Moves
from serving.schedule.configured import rules_of
from serving.schedule.pool import Report
from serving.service import OWN_HEADER
from serving.spending import Spending
from serving.tokenizer.counting import TextCounter
from toolkit.core.clock import Clock
from toolkit.core.errors import (
    Busy,
    ClientGone,
    EngineFailed,
    EngineUnavailable,
    InvalidRequest,
    NotFound,
    OutOfTime,
    ToolkitError,
)
from toolkit.core.sample import Degradation, Degraded, Sample, SloClass

log = logging.getLogger("toolkit.gateway")

SLOWEST_TOKENS_PER_S = 2.0
"""A non-streamed answer that comes slower than this after its prefill is taken for stuck."""

SPARED = frozenset(
    {
        "queue_full",
        "queue_too_long",
        "kv_lease_exceeded",
        "engine_busy",
        "engine_failed",
        "engine_unavailable",
        "ttft_budget_exceeded",
    }
)
"""Errors that the fallback endpoint's answer may take the place of, while nothing was sent and time is left."""

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
    spending: Spending
    fallback: Fallback
    keep_result: KeepResult | None = None
    own_key: str = ""  # of Service


class Lifecycle:
    """Runs chat requests. Every request that arrives ends in exactly one Sample, and gives back all it took."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._intake = Intake(parts.config.gateway, parts.vocabulary, parts.clock, parts.spending)
        self._entering: dict[str, asyncio.Future[ToolkitError | None]] = {}
        self._lapsing: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self.stopping = False
        self._cutting = False

    @property
    def open_requests(self) -> int:
        return len(self._tasks)

    def pool_told(self, decode: str, report: Report | None) -> None:
        """What a decode engine says of its KV pool; None: it does not tell."""
        parts, now = self._parts, self._parts.clock.monotonic()
        self.move(parts.admission.serve(parts.answerer.decodes(now), now))
        self.move(parts.admission.told(decode, report, now))

    def retune(self, config: ServeConfig) -> None:
        """Another configuration from now on: what is read of it when it is used."""
        self._parts = replace(self._parts, config=config)
        parts, now = self._parts, self._parts.clock.monotonic()
        self.move(parts.admission.serve(parts.answerer.decodes(now), now))
        self.move(parts.admission.retune(rules_of(config), now))

    async def idle(self, timeout_s: float) -> None:
        """Wait until no request is open, at most that long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def revoke(self, keys: Iterable[str]) -> None:
        """End requests inside whose leases have lapsed, with a typed error (lease_lapsed). Again changes nothing."""
        for key in keys:
            lapsed = self._lapsing.get(key)
            if lapsed is not None and not lapsed.done():
                lapsed.set_result(None)

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
            Promise(default, parts.config.budget_s(default)),
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
                    spent_s = recording.timeline(parts.clock.monotonic()).spent()
                    async with patience(parts.config.stream_stall_s):
                        await tell(exchange, error, recording.request_id, spent_s)
        finally:
            self._tasks.discard(task)
            parts.spending.learn(recording)
            sample = recording.finish(parts.clock.monotonic(), error, parts.model)
            parts.on_sample(sample, recording.progress.gaps_s)
            answered = recording.progress.first_token_at is not None
            if parts.keep_result is not None and recording.result is not None and answered:
                parts.keep_result(recording.result, sample)

    async def _seated(self, exchange: Exchange, recording: Recording) -> None:
        parts = self._parts
        head = exchange.head
        recording.tenant = parts.keys.name_of(head.header("authorization"))
        told = (head.header(OWN_HEADER) or "").encode()
        recording.own = bool(parts.own_key) and hmac.compare_digest(told, parts.own_key.encode())
        budgets: Mapping[SloClass, float] = {slo: parts.config.budget_s(slo) for slo in SloClass}
        recording.promise = promise(
            head.header("x-slo-class"),
            head.header("x-ttft-budget-ms"),
            parts.config.default_slo_class,
            budgets,
            head.header("x-toolkit-degrade"),
        )
        if self.stopping:
            raise EngineUnavailable("The gateway is stopping.", code="shutting_down", retry_after_s=1.0)
        key = recording.request_id
        asked: list[chat.ChatRequest] = []
        seated = False
        try:
            async with parts.bodies.hold(FREE_BODY_BYTES) as room:
                try:
                    parts.admission.arrive(
                        key, recording.promise.slo_class, recording.arrived, recording.deadline
                    )
                    seated = True
                    await self._serve(exchange, recording, room, asked)
                    self._answered(recording)
                except ToolkitError as error:
                    if error.code.code == "engine_busy" or isinstance(error, OutOfTime):
                        parts.admission.overloaded(key, parts.clock.monotonic())
                    self.move(parts.admission.leave(key, parts.clock.monotonic()))
                    if seated and not asked:  # its body has begun to come, and is not whole
                        raise
                    await self._elsewhere(exchange, recording, room, asked, error)
        finally:
            now = parts.clock.monotonic()
            recording.lacked_kv_s = parts.admission.lacked_s(key, now)
            self.move(parts.admission.leave(key, now))

    def _answered(self, recording: Recording) -> None:
        """The admission learns from first tokens when they come, or, of an answer in one piece, at its end."""
        admission, now, progress = self._parts.admission, self._parts.clock.monotonic(), recording.progress
        if progress.lost:  # their time is no measure of load, a refusal is
            if any(one.cause == "busy" for one in progress.lost):
                admission.overloaded(recording.request_id, now)
            return
        self.move(admission.answered(recording.request_id, progress.first_token_at or now, now))

    async def _serve(
        self, exchange: Exchange, recording: Recording, room: Held, asked: list[chat.ChatRequest]
    ) -> None:
        """asked: gets the request, and keeps it where the fallback endpoint may need it."""
        asked.append(await self._intake.request(exchange, recording, room))
        self._parts.admission.sort(
            recording.request_id, recording.workload_class, self._parts.clock.monotonic()
        )
        body = await guarded(self._package(recording, asked[0]), hang_up(exchange))
        kept_bytes = len(body.open_json)
        if self._may_go_elsewhere(recording):
            kept_bytes += asked[0].held_bytes
        else:
            asked.clear()  # the images as they came: from here on the engine's body alone is held
        await self._intake.room(room, kept_bytes, recording)
        room.keep(kept_bytes)
        await guarded(
            self._answer(exchange, recording, body), hang_up(exchange), self._lapse(recording.request_id)
        )

    async def _lapse(self, key: str) -> None:
        """Raises EngineUnavailable when the request is revoked."""
        self._lapsing[key] = asyncio.get_running_loop().create_future()
        try:
            await self._lapsing[key]
        finally:
            del self._lapsing[key]
        raise EngineUnavailable(
            "This gateway's part of the KV pool lapsed while the request ran.",
            code="lease_lapsed",
            retry_after_s=1.0,
        )

    def _may_go_elsewhere(self, recording: Recording) -> bool:
        """Whether the fallback endpoint may answer, as far as the operator and the client say."""
        allowed = self._parts.config.slo(recording.promise.slo_class).fallback
        wanted = Degradation.FALLBACK in recording.promise.degrade and not recording.own
        return allowed and wanted and self._parts.fallback.configured

    async def _elsewhere(
        self,
        exchange: Exchange,
        recording: Recording,
        room: Held,
        asked: list[chat.ChatRequest],
        error: ToolkitError,
    ) -> None:
        """The fallback endpoint's answer instead of the error. Raises the error where there is none."""
        fallback, progress = self._parts.fallback, recording.progress
        if exchange.started or error.code.code not in SPARED or not self._may_go_elsewhere(recording):
            raise error
        place = fallback.enter(recording.deadline)
        if place is None:
            raise error
        with fallback.held(place):
            request = asked[0] if asked else await self._intake.request(exchange, recording, room)
            self._check_model(request)
            progress.elsewhere()
            recording.fallback = self._parts.clock.monotonic()
            recording.degraded.append(Degraded(Degradation.FALLBACK, error.code.code))
            try:
                await guarded(self._from_fallback(exchange, recording, request), hang_up(exchange))
            except (Busy, EngineFailed, InvalidRequest) as other:
                if exchange.started:
                    raise
                log.warning("request %s: %s", recording.request_id, other)
                recording.degraded.pop()
                raise error from other

    async def _from_fallback(
        self, exchange: Exchange, recording: Recording, request: chat.ChatRequest
    ) -> None:
        fallback, limits = self._parts.fallback, self._limits(recording)
        if recording.stream:
            forward = Forwarder(exchange, recording, limits.stall_s)
            await fallback.stream(request, limits, recording.progress, forward)
        else:
            answer = await fallback.whole(request, limits, recording.progress)
            await send_whole(exchange, recording, answer, limits.stall_s)
        async with patience(limits.stall_s):
            await exchange.end()

    def _check_model(self, request: chat.ChatRequest) -> None:
        model = self._parts.model
        if request.model not in ("", model):
            raise NotFound(
                f"The model {request.model!r:.100} is not served here; this gateway serves {model!r}.",
                param="model",
                action="Use a model of GET /v1/models, or leave the field out.",
            )

    async def _package(self, recording: Recording, request: chat.ChatRequest) -> EngineBody:
        """What the engines get."""
        parts = self._parts
        self._check_model(request)
        if parts.spending.left_s(recording, "body") <= 0:
            raise parts.spending.out(recording, "body")
        prepared = await self._prepare(recording, request)
        await self._count(recording, request, prepared)
        prepared = await self._fit(recording, request, prepared)
        return compose(
            request, [image.data_uri for image in prepared.images], recording.max_tokens, parts.model
        )

    async def _answer(self, exchange: Exchange, recording: Recording, body: EngineBody) -> None:
        await self._wait_for_slot(recording)
        if self._parts.config.engine.priority:
            body = replace(body, priority=self._parts.admission.level(recording.request_id))
        await self._dispatch(exchange, recording, body)

    async def _prepare(
        self, recording: Recording, request: chat.ChatRequest, grid: ImageGrid | None = None
    ) -> PreparedImages:
        try:
            prepared = await self._parts.access.prepare(
                [slot.url for slot in request.images],
                self._parts.spending.by(recording, "prepare"),
                grid,
                keep=not recording.own,
            )
        except OutOfTime as error:
            raise self._parts.spending.out(recording, error.hop or "prepare") from error
        if self._parts.keep_result is not None and not recording.own:
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
        recording.key = key_of(request, prepared.digests, recording.text_tokens)

    async def _fit(
        self, recording: Recording, request: chat.ChatRequest, prepared: PreparedImages
    ) -> PreparedImages:
        """Within the KV that one request may have: by smaller images, where its class lets them be made. Raises TooLarge."""
        parts, leases = self._parts, self._parts.admission.leases
        usual, most = recording.image_tokens, leases.most_each(recording.choices)
        if most is None or recording.need.each <= most:
            return prepared
        promised = parts.config.slo(recording.promise.slo_class)
        if promised.degrade and usual and Degradation.IMAGES in recording.promise.degrade:
            sizes = [(image.record.width, image.record.height) for image in prepared.images]
            left = most - (recording.need.each - usual)
            grid = fit(parts.access.grid, sizes, left, promised.degrade_floor)
            if grid is not None:
                prepared = await self._prepare(recording, request, grid)
                recording.image_tokens = sum(image.record.tokens for image in prepared.images)
                recording.degraded.append(
                    Degraded(Degradation.IMAGES, "lease", usual, recording.image_tokens)
                )
        leases.refuse_too_large(recording.need)
        return prepared

    async def _wait_for_slot(self, recording: Recording) -> None:
        parts = self._parts
        slot = self._entering[recording.request_id] = asyncio.get_running_loop().create_future()
        key, now = recording.request_id, parts.clock.monotonic()
        try:
            self.move(parts.admission.serve(parts.answerer.decodes(now), now))
            self.move(
                parts.admission.prepared(key, recording.workload_class, recording.tokens, now, recording.need)
            )
            async with asyncio.timeout(max(0.0, self._wait_until(recording) - parts.clock.monotonic())):
                refused = await slot
            if refused is not None:
                raise refused
        except TimeoutError:
            raise parts.spending.out(recording, "wait") from None
        finally:
            del self._entering[recording.request_id]
        recording.admitted = parts.clock.monotonic()

    def _wait_until(self, recording: Recording) -> float:
        """When waiting for a slot ends: while the engines, or the fallback endpoint, can still be in time."""
        by = self._parts.spending.by(recording, "wait")
        if not self._may_go_elsewhere(recording):
            return by
        return min(by, recording.deadline - self._parts.fallback.takes_s())

    def move(self, moves: Moves) -> None:
        """Tell those whom an event of the admission set in motion."""
        for key, refusal in [*((key, None) for key in moves.entered), *moves.refused]:
            slot = self._entering.get(key)
            if slot is not None and not slot.done():
                slot.set_result(refusal)

    def _limits(self, recording: Recording) -> Limits:
        config = self._parts.config
        whole_s = min(
            config.answer_timeout_s, config.stream_stall_s + recording.max_tokens / SLOWEST_TOKENS_PER_S
        )
        least_s = self._parts.spending.lacking_s(recording, "wait")
        return Limits(recording.deadline, config.stream_stall_s, whole_s, least_s)

    async def _dispatch(self, exchange: Exchange, recording: Recording, body: EngineBody) -> None:
        parts, limits = self._parts, self._limits(recording)
        want = Want(
            recording.text_tokens + recording.image_tokens,
            recording.max_tokens,
            recording.workload_class,
            recording.key,
        )
        hold = Hold(parts.admission, recording.request_id, parts.clock, self.move)
        if recording.stream:
            forward = Forwarder(exchange, recording, limits.stall_s, lambda: self._answered(recording))
            await parts.answerer.stream(
                body, recording.choices, limits, recording.progress, forward, want, hold
            )
        else:
            answer = await parts.answerer.whole(
                body, recording.choices, limits, recording.progress, want, hold
            )
            await send_whole(exchange, recording, answer, limits.stall_s)
        async with patience(limits.stall_s):
            await exchange.end()
