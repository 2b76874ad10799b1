"""What the load generator writes down about one request: one line of samples.jsonl.

Every time is in seconds after the run's start, on one monotonic clock, taken where it happened: `intended_s` from the
plan, `sent_s` when the send began, the rest when the bytes arrived at the socket.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from toolkit.core.plan import PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass
from toolkit.core.slo import gaps, ttft

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "index": "Place in the plan (plan.json holds the same number).",
        "class": "Workload class: text_only, image_short, multi_image_long, high_res.",
        "slo": "SLO class: realtime, standard, batch.",
        "attempt": "0: the planned request; 1, 2 ...: the same sent again after a Retry-After, no offer of its own.",
        "outcome": "completed; refused: an HTTP error status; broken: no proper end; unsent: never reached the server.",
        "status": "HTTP status; null where no answer began.",
        "code": "Why it is not completed: the server's error code or the generator's own; null when completed.",
        "message": "The server's or the transport's words; null when completed.",
        "finish_reason": "As the server gave it.",
        "request_id": "The answer's x-request-id.",
        "retry_after_s": "When a refusal said to come back, in seconds from then; null where it did not.",
        "intended_s": "When it was due; for a later attempt, when the client came back.",
        "sent_s": "When the send began, connecting included; null when it was never begun.",
        "first_byte_s": "When the head of the answer arrived.",
        "first_token_s": "When the first content token arrived; a chunk with only a role is none.",
        "ended_s": "When its record was closed.",
        "ttft_s": "first_token_s - sent_s: what the server did.",
        "ttft_scheduled_s": "first_token_s - intended_s: what a user felt, the generator's lateness included.",
        "itl_s": "Gaps between token-bearing events, in order; empty for fewer than two.",
        "tokens": "Answer tokens by the server's usage, else token-bearing events.",
        "prompt_tokens": "Prompt tokens by the server's usage; null where it gave none.",
        "degraded": "What was given up for it, in the words of the answer's x-toolkit-degraded; null where nothing was. Reports count it apart.",
    }
)
"""The keys of a line of samples.jsonl, stable: none is renamed or removed, new ones may be added."""


GENERATOR_LIMIT = "generator_limit"
"""Code of a request for which the generator's own machine had no socket left: no fault of the server's."""


class LoadOutcome(StrEnum):
    """How a planned request ended, seen from outside. All but COMPLETED miss their SLO."""

    COMPLETED = "completed"
    REFUSED = "refused"  # an HTTP error status
    BROKEN = "broken"  # the answer began, or should have, and did not end well
    UNSENT = "unsent"  # never reached the server


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One attempt's record. token_times_s: arrival of each token-bearing event; tokens: by the server's usage, else their count."""

    index: int
    workload_class: WorkloadClass
    slo_class: SloClass
    intended_s: float
    outcome: LoadOutcome
    ended_s: float
    sent_s: float | None = None
    first_byte_s: float | None = None
    token_times_s: tuple[float, ...] = ()
    tokens: int = 0
    prompt_tokens: int | None = None
    finish_reason: str | None = None
    status: int | None = None
    code: str | None = None
    message: str | None = None
    request_id: str | None = None
    attempt: int = 0
    retry_after_s: float | None = None
    degraded: str | None = None

    @property
    def first(self) -> bool:
        """Whether it is the planned request itself: only those are offered load."""
        return self.attempt == 0

    @property
    def admitted(self) -> bool:
        """Whether a server took it: its answer began, however it ended."""
        return self.completed or (self.outcome is LoadOutcome.BROKEN and self.status == 200)

    @property
    def completed(self) -> bool:
        return self.outcome is LoadOutcome.COMPLETED

    @property
    def whole(self) -> bool:
        """Whether it was answered as it was asked."""
        return self.completed and self.degraded is None

    @property
    def slip_s(self) -> float | None:
        """The generator's own lateness."""
        return None if self.sent_s is None else self.sent_s - self.intended_s

    @property
    def first_token_s(self) -> float | None:
        return self.token_times_s[0] if self.token_times_s else None

    @property
    def ttft_s(self) -> float | None:
        """From the actual send."""
        return ttft(self.sent_s, self.first_token_s)

    @property
    def ttft_scheduled_s(self) -> float | None:
        """From the intended arrival: includes what the generator was late."""
        return ttft(self.intended_s, self.first_token_s)

    @property
    def itl_s(self) -> tuple[float, ...]:
        return gaps(self.token_times_s)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types under stable keys; seconds rounded to microseconds, which is finer than the clock's use."""
        return {
            "index": self.index,
            "class": self.workload_class.value,
            "slo": self.slo_class.value,
            "attempt": self.attempt,
            "outcome": self.outcome.value,
            "status": self.status,
            "code": self.code,
            "message": self.message,
            "finish_reason": self.finish_reason,
            "request_id": self.request_id,
            "retry_after_s": _round(self.retry_after_s),
            "intended_s": round(self.intended_s, 6),
            "sent_s": _round(self.sent_s),
            "first_byte_s": _round(self.first_byte_s),
            "first_token_s": _round(self.first_token_s),
            "ended_s": round(self.ended_s, 6),
            "ttft_s": _round(self.ttft_s),
            "ttft_scheduled_s": _round(self.ttft_scheduled_s),
            "itl_s": [round(gap, 6) for gap in self.itl_s],
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "degraded": self.degraded,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "LoadSample":
        """The inverse of `to_dict`, to the microsecond; files of before there were attempts hold first ones.

        Raises KeyError, ValueError, TypeError.
        """
        times: list[float] = []
        if data["first_token_s"] is not None:
            times.append(data["first_token_s"])
            for gap in data["itl_s"]:
                times.append(times[-1] + gap)
        same = (
            "index",
            "intended_s",
            "ended_s",
            "sent_s",
            "first_byte_s",
            "tokens",
            "prompt_tokens",
            "finish_reason",
        )
        return cls(
            workload_class=WorkloadClass(data["class"]),
            slo_class=SloClass(data["slo"]),
            outcome=LoadOutcome(data["outcome"]),
            token_times_s=tuple(times),
            attempt=data.get("attempt", 0),
            retry_after_s=data.get("retry_after_s"),
            degraded=data.get("degraded"),
            **{key: data[key] for key in (*same, "status", "code", "message", "request_id")},
        )


def unsent(
    planned: PlannedRequest, ended_s: float, code: str = "unsent", message: str | None = None
) -> LoadSample:
    """A request that was due and never begun, for all that is known."""
    return LoadSample(
        index=planned.index,
        workload_class=planned.workload_class,
        slo_class=planned.slo_class,
        intended_s=planned.at_s,
        outcome=LoadOutcome.UNSENT,
        ended_s=ended_s,
        code=code,
        message=message,
    )


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
