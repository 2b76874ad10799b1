"""One request while it runs: what its Sample will say."""

from dataclasses import dataclass, field

from serving.attempt import Pair, Progress
from serving.promise import Promise
from serving.result import Result
from serving.schedule.lease import Need
from toolkit.core.errors import ToolkitError
from toolkit.core.sample import (
    Degraded,
    ImageRecord,
    ItlSummary,
    LostAttempt,
    Outcome,
    Sample,
    Timeline,
    WorkloadClass,
)

SHED_CODES = frozenset(
    {"shed", "queue_full", "queue_too_long", "engine_busy", "engine_unavailable", "shutting_down"}
)


@dataclass(slots=True)
class Recording:
    """Mutable facts of one request; instants are on the monotonic clock, None where it did not get that far."""

    request_id: str
    arrived: float
    arrived_at: float
    promise: Promise
    tenant: str = "anonymous"
    simulated: bool = False  # the engines are stand-ins
    own: bool = False  # our own question at the start: nothing of it is kept
    stream: bool = False
    choices: int = 1
    workload_class: WorkloadClass = WorkloadClass.UNCLASSIFIED
    max_tokens: int = 0
    text_tokens: int = 0
    image_tokens: int = 0
    tokens_counted: bool = False
    images: tuple[ImageRecord, ...] = ()
    key: bytes | None = None  # of what a prefill may have cached
    result: Result | None = None  # only where results are stored
    body_read: float | None = None
    parsed: float | None = None
    fetched: float | None = None
    prepared: float | None = None
    admitted: float | None = None
    lacked_kv_s: float = 0.0
    fallback: float | None = None
    degraded: list[Degraded] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)

    @property
    def pair(self) -> Pair | None:
        return self.progress.pair

    @property
    def tokens(self) -> int:
        """What it may hold in the engines at most, once counted: prompt and all its choices."""
        return self.text_tokens + self.image_tokens + self.max_tokens * self.choices

    @property
    def need(self) -> Need:
        """The same as KV."""
        prompt = self.text_tokens + self.image_tokens
        return Need(prompt + self.max_tokens, self.choices, prompt)

    @property
    def deadline(self) -> float:
        """When the first token must be out."""
        return self.arrived + self.promise.budget_s

    def timeline(self, now: float) -> Timeline:
        """As of now."""
        progress, since = self.progress, self._since
        return Timeline(
            body_read=since(self.body_read),
            fetched=since(self.fetched),
            prepared=since(self.prepared),
            admitted=since(self.admitted),
            dispatched=since(progress.dispatched_at),
            prefill_done=since(progress.prefill_done_at),
            first_token=since(progress.first_token_at),
            ended=round(now - self.arrived, 6),
            fallback=since(self.fallback),
            parsed=since(self.parsed),
        )

    def finish(self, now: float, error: ToolkitError | None, model: str) -> Sample:
        """The record, with its one outcome."""
        progress, timeline = self.progress, self.timeline(now)
        reported = progress.usage.get("completion_tokens")
        return Sample(
            request_id=self.request_id,
            arrived_at=self.arrived_at,
            workload_class=self.workload_class,
            slo_class=self.promise.slo_class,
            outcome=Outcome.COMPLETED if error is None else outcome_of(error),
            status=200 if error is None else error.status,
            timeline=timeline,
            error_code=None if error is None else error.code.code,
            error_message=None if error is None else str(error)[:500],
            error_hop=None if error is None else (error.hop or list(timeline.spent())[-1]),
            tenant=self.tenant,
            model=model,
            stream=self.stream,
            ttft_budget=self.promise.budget_s,
            max_tokens=self.max_tokens,
            choices=self.choices,
            text_tokens_estimated=self.text_tokens,
            image_tokens_estimated=self.image_tokens,
            tokens_counted=self.tokens_counted,
            lacked_kv=round(self.lacked_kv_s, 6),
            prompt_tokens=progress.usage.get("prompt_tokens"),
            completion_tokens=reported if reported is not None else (progress.token_events or None),
            finish_reason=progress.finish_reason,
            prefill=self.pair.prefill.name if self.pair else None,
            decode=self.pair.decode.name if self.pair else None,
            rids=progress.rids,
            bootstrap_room=progress.room,
            attempts=progress.attempts,
            lost_attempts=tuple(
                LostAttempt(
                    prefill=one.pair.prefill.name,
                    decode=one.pair.decode.name,
                    cause=one.cause,
                    then=one.then,
                    dispatched=self._since(one.dispatched_at),
                    ended=round(one.ended_at - self.arrived, 6),
                    message=one.message[:500],
                    choice=one.choice,
                )
                for one in progress.lost
            ),
            degraded=tuple(self.degraded),
            itl=summarise_gaps(progress.gaps_s),
            images=self.images,
        )

    def _since(self, at: float | None) -> float | None:
        return None if at is None else round(at - self.arrived, 6)


def outcome_of(error: ToolkitError) -> Outcome:
    """The one outcome that an error stands for."""
    code = error.code.code
    if code in SHED_CODES:
        return Outcome.SHED
    if code == "ttft_budget_exceeded":
        return Outcome.TIMED_OUT
    if code == "client_closed_request":
        return Outcome.CLIENT_CLOSED
    if code == "engine_failed":
        return Outcome.ENGINE_FAILED
    return Outcome.INTERNAL_ERROR if error.status >= 500 else Outcome.REJECTED


def summarise_gaps(gaps_s: list[float]) -> ItlSummary:
    """Count, mean, p95 (nearest rank) and largest of the gaps, seconds."""
    if not gaps_s:
        return ItlSummary()
    ordered = sorted(gaps_s)
    rank = max(0, -(-len(ordered) * 95 // 100) - 1)
    return ItlSummary(
        len(ordered), round(sum(ordered) / len(ordered), 6), round(ordered[rank], 6), round(ordered[-1], 6)
    )
