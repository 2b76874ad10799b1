"""When and how a request goes to the fallback endpoint instead of ending in an error."""

import logging

from serving.access.room import Held
from serving.chat import ChatRequest
from serving.exchange import Exchange
from serving.guarded import guarded
from serving.intake import Intake
from serving.packing import check_model
from serving.parts import Parts
from serving.recording import Recording
from serving.reply import Forwarder, hang_up, patience, send_whole
from toolkit.core.errors import Busy, EngineFailed, InvalidRequest, ToolkitError
from toolkit.core.sample import Degradation, Degraded

log = logging.getLogger("toolkit.gateway")

SPARED = frozenset(
    {
        "queue_full",
        "queue_too_long",
        "kv_lease_exceeded",
        "lease_lapsed",
        "no_grant",
        "engine_busy",
        "engine_failed",
        "engine_unavailable",
        "ttft_budget_exceeded",
    }
)
"""Errors that the fallback endpoint's answer may take the place of, while nothing was sent and time is left."""


class Detour:
    """Of one gateway."""

    def __init__(self, parts: Parts, intake: Intake) -> None:
        self._parts = parts
        self._intake = intake

    def open_to(self, recording: Recording) -> bool:
        """Whether the fallback endpoint may answer the request, as far as operator and client say."""
        allowed = self._parts.config.slo(recording.promise.slo_class).fallback
        wanted = Degradation.FALLBACK in recording.promise.degrade and not recording.own
        return allowed and wanted and self._parts.fallback.configured

    def wait_until(self, recording: Recording) -> float:
        """When waiting for a slot ends: while the engines, or the fallback endpoint, can still be in time."""
        by = self._parts.spending.by(recording, "wait")
        if not self.open_to(recording):
            return by
        return min(by, recording.deadline - self._parts.fallback.takes_s())

    async def take(
        self,
        exchange: Exchange,
        recording: Recording,
        room: Held,
        request: ChatRequest | None,
        error: ToolkitError,
    ) -> None:
        """The fallback endpoint's answer instead of the error. request: None where its body was not read yet. Raises the error
        where there is none, OutOfTime where that endpoint is late too."""
        fallback = self._parts.fallback
        if exchange.started or error.code.code not in SPARED or not self.open_to(recording):
            raise error
        place = fallback.enter(recording.deadline)
        if place is None:
            raise error
        with fallback.held(place):
            request = request or await self._intake.request(exchange, recording, room)
            check_model(request, self._parts.model)
            recording.progress.elsewhere()
            recording.fallback = self._parts.clock.monotonic()
            recording.degraded.append(Degraded(Degradation.FALLBACK, error.code.code))
            try:
                await guarded(self._answer(exchange, recording, request), hang_up(exchange))
            except (Busy, EngineFailed, InvalidRequest) as other:
                if exchange.started:
                    raise
                log.warning("request %s: %s", recording.request_id, other)
                recording.degraded.pop()
                raise error from other

    async def _answer(self, exchange: Exchange, recording: Recording, request: ChatRequest) -> None:
        fallback, limits = self._parts.fallback, self._parts.limits(recording)
        if recording.stream:
            forward = Forwarder(exchange, recording, limits.stall_s)
            await fallback.stream(request, limits, recording.progress, forward)
        else:
            answer = await fallback.whole(request, limits, recording.progress)
            await send_whole(exchange, recording, answer, limits.stall_s)
        async with patience(limits.stall_s):
            await exchange.end()
