"""One chat request from its head to its one outcome."""

import asyncio
import contextlib
import hmac
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from serving import chat
from serving.access.room import Held
from serving.config import ServeConfig
from serving.detour import Detour
from serving.engine_body import EngineBody
from serving.exchange import Exchange
from serving.guarded import guarded
from serving.hold import Hold
from serving.instances import Want
from serving.intake import FREE_BODY_BYTES, Intake
from serving.packing import Packer
from serving.parts import Parts
from serving.promise import Promise, promise
from serving.recording import Recording
from serving.reply import Forwarder, decided, hang_up, patience, send_whole, tell
from serving.schedule.admit import Moves
from serving.schedule.configured import rules_of
from serving.schedule.pool import Report
from serving.schedule.shared.negotiator import Negotiator
from serving.service import OWN_HEADER
from toolkit.core.errors import ClientGone, EngineUnavailable, OutOfTime, ToolkitError
from toolkit.core.sample import SloClass

log = logging.getLogger("toolkit.gateway")


class Lifecycle:
    """Runs chat requests. Every request that arrives ends in exactly one Sample, and gives back all it took."""

    def __init__(self, parts: Parts) -> None:
        self._use(parts)
        self._entering: dict[str, asyncio.Future[ToolkitError | None]] = {}
        self._lapsing: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self.stopping = False
        self.sharing: Negotiator | None = None
        self._cutting = False

    def _use(self, parts: Parts) -> None:
        self._parts = parts
        self._intake = Intake(parts.config.gateway, parts.vocabulary, parts.clock, parts.spending)
        self._packer = Packer(parts)
        self._detour = Detour(parts, self._intake)

    @property
    def open_requests(self) -> int:
        return len(self._tasks)

    @property
    def has_part(self) -> bool:
        """Of the pools that it shares, if it does: whether there is anything to lease from."""
        return self.sharing is None or self.sharing.ready

    def pool_told(self, decode: str, report: Report | None) -> None:
        """What a decode engine says of its KV pool; None: it does not tell."""
        now = self._parts.clock.monotonic()
        self._serving(now)
        self.move(self._parts.admission.told(decode, report, now))

    def retune(self, config: ServeConfig) -> None:
        """Another configuration from now on: what is read of it when it is used."""
        self._use(replace(self._parts, config=config))
        now = self._parts.clock.monotonic()
        self._serving(now)
        self.move(self._parts.admission.retune(rules_of(config), now))

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
            simulated=parts.config.engine.kind == "simulated",
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
                        await tell(exchange, error, recording.request_id, spent_s, decided(recording))
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
                    if self.sharing is not None:
                        self.sharing.refuse()
                    parts.admission.arrive(
                        key,
                        recording.promise.slo_class,
                        recording.arrived,
                        recording.deadline,
                        self._packer.lightens(recording),
                    )
                    seated = True
                    await self._serve(exchange, recording, room, asked)
                    self._answered(recording)
                except ToolkitError as error:
                    if error.code.code == "engine_busy" or isinstance(error, OutOfTime):
                        parts.admission.overloaded(key, parts.clock.monotonic())
                    self._leave(recording)
                    if seated and not asked:  # its body has begun to come, and is not whole
                        raise
                    await self._detour.take(exchange, recording, room, asked[0] if asked else None, error)
                    parts.admission.spared(error)
        finally:
            self._leave(recording)

    def _leave(self, recording: Recording) -> None:
        """Give back all that the scheduler lent. Idempotent."""
        admission, now = self._parts.admission, self._parts.clock.monotonic()
        recording.lacked_kv_s = max(recording.lacked_kv_s, admission.lacked_s(recording.request_id, now))
        self.move(admission.leave(recording.request_id, now))

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
        body = await guarded(self._packer.pack(recording, asked[0]), hang_up(exchange))
        kept_bytes = len(body.open_json)
        if self._detour.open_to(recording):
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

    async def _answer(self, exchange: Exchange, recording: Recording, body: EngineBody) -> None:
        await self._wait_for_slot(recording)
        if self._parts.config.engine.priority:
            body = replace(body, priority=self._parts.admission.level(recording.request_id))
        await self._dispatch(exchange, recording, body)

    async def _wait_for_slot(self, recording: Recording) -> None:
        parts = self._parts
        slot = self._entering[recording.request_id] = asyncio.get_running_loop().create_future()
        key, now = recording.request_id, parts.clock.monotonic()
        try:
            self._serving(now)
            self.move(
                parts.admission.prepared(key, recording.workload_class, recording.tokens, now, recording.need)
            )
            async with asyncio.timeout(
                max(0.0, self._detour.wait_until(recording) - parts.clock.monotonic())
            ):
                refused = await slot
            if refused is not None:
                raise refused
        except TimeoutError:
            raise parts.spending.out(recording, "wait") from None
        finally:
            del self._entering[recording.request_id]
        recording.admitted = parts.clock.monotonic()

    def _serving(self, now: float) -> None:
        """Tell the admission which decode engines should get requests now."""
        self.move(self._parts.admission.serve(self._parts.answerer.decodes(now), now))

    def move(self, moves: Moves) -> None:
        """Tell those whom an event of the admission set in motion."""
        for key, refusal in [*((key, None) for key in moves.entered), *moves.refused]:
            slot = self._entering.get(key)
            if slot is not None and not slot.done():
                slot.set_result(refusal)

    async def _dispatch(self, exchange: Exchange, recording: Recording, body: EngineBody) -> None:
        parts, limits = self._parts, self._parts.limits(recording)
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
