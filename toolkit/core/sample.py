"""One finished request as a record: when each hop ended, what it carried, and its one outcome."""

from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any


class WorkloadClass(StrEnum):
    """What is asked. A total rule: every request has exactly one (toolkit/core/classify.py)."""

    TEXT_ONLY = "text_only"
    IMAGE_SHORT = "image_short"
    MULTI_IMAGE_LONG = "multi_image_long"
    HIGH_RES = "high_res"
    UNCLASSIFIED = "unclassified"  # ended before its body was read


class SloClass(StrEnum):
    """What is promised (article section 6.1): 800 ms, 3 s, throughput only."""

    REALTIME = "realtime"
    STANDARD = "standard"
    BATCH = "batch"


class Outcome(StrEnum):
    """How a request ended. Every accepted request ends in exactly one."""

    COMPLETED = "completed"
    REJECTED = "rejected"  # the request itself was wrong (4xx but 429)
    SHED = "shed"  # no room: 429 or 503
    TIMED_OUT = "timed_out"  # the TTFT budget ended before the first token
    ENGINE_FAILED = "engine_failed"
    CLIENT_CLOSED = "client_closed"
    INTERNAL_ERROR = "internal_error"


class Degradation(StrEnum):
    """What a request may be given less of, so that it is answered in time or at all (docs/decisions/0026-one-budget.md)."""

    IMAGES = "images"  # smaller images
    MAX_TOKENS = "max_tokens"  # a shorter answer at most
    FALLBACK = "fallback"  # another endpoint's answer


@dataclass(frozen=True, slots=True)
class Degraded:
    """One thing that was done. why: "late", "lease", or the code of the error that it spared. before, after: tokens."""

    kind: Degradation
    why: str
    before: int | None = None
    after: int | None = None

    def __str__(self) -> str:
        """A member of the header x-toolkit-degraded (a list in the sense of RFC 9651)."""
        sizes = "" if self.before is None else f";from={self.before};to={self.after}"
        return f"{self.kind.value}{sizes};why={self.why}"


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One image of a request. width, height: pixels of the source; size_bytes: as received; tokens: in the prompt."""

    width: int
    height: int
    size_bytes: int
    format: str
    tokens: int
    prepared_width: int
    prepared_height: int
    origin: str  # "data" or "url"
    cache: str = ""  # where it was found prepared: "memory", "shared", "joined" (being prepared for another); "": nowhere


@dataclass(frozen=True, slots=True)
class Timeline:
    """Seconds after arrival at which each hop ended; None where the request did not get that far."""

    body_read: float | None = None
    fetched: float | None = None
    prepared: float | None = None
    admitted: float | None = None
    dispatched: float | None = None
    prefill_done: float | None = None
    first_token: float | None = None
    ended: float = 0.0
    fallback: float | None = None  # when it was sent to the fallback endpoint
    parsed: float | None = None  # when the body was found to be a request that may be served

    def spent(self) -> dict[str, float]:
        """Seconds spent in each hop that the request reached, in order; they add up to its duration.

        The time after the last mark belongs to the hop that was then in progress: the one a failed request ended in.
        """
        marks = [
            ("body", self.body_read),
            ("parse", self.parsed),
            ("fetch", self.fetched),
            ("prepare", self.prepared),
            ("wait", self.admitted),
        ]
        if self.fallback is None:
            marks += [
                ("dispatch", self.dispatched),
                ("prefill", self.prefill_done),
                ("first_token", self.first_token),
            ]
        else:
            marks += [("dispatch", self.fallback), ("fallback", self.first_token)]
        marks.append(("decode", None))
        reached = max((index for index, (_, at) in enumerate(marks) if at is not None), default=-1)
        spent: dict[str, float] = {}
        before = 0.0
        last = marks[reached + 1][0] if reached + 1 < len(marks) else "decode"
        for name, at in [*marks[: reached + 1], (last, self.ended)]:
            if at is not None:
                spent[name] = spent.get(name, 0.0) + max(0.0, at - before)
                before = max(before, at)
        return spent


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt that failed before its first token. Times: seconds after arrival.

    cause: unreachable, transfer, failed, stalled, busy. then: "retried", or why it was not made again: too_many, no_pair,
    no_time, no_budget.
    """

    prefill: str
    decode: str
    cause: str
    then: str
    dispatched: float | None
    ended: float
    message: str = ""
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ItlSummary:
    """Gaps between token-bearing events, seconds."""

    count: int = 0
    mean: float = 0.0
    p95: float = 0.0
    max: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The record of one request (one line of the journal)."""

    request_id: str
    arrived_at: float  # Unix seconds
    workload_class: WorkloadClass
    slo_class: SloClass
    outcome: Outcome
    status: int
    timeline: Timeline
    error_code: str | None = None
    error_message: str | None = None
    error_hop: str | None = None
    tenant: str = "anonymous"
    model: str = ""
    stream: bool = False
    ttft_budget: float = 0.0
    max_tokens: int = 0
    choices: int = 1
    text_tokens_estimated: int = 0
    image_tokens_estimated: int = 0
    tokens_counted: bool = False  # the two above are exact: the served tokenizer, template and image rules
    lacked_kv: float = 0.0  # seconds of its wait in which a slot was free and its KV was not
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    prefill: str | None = None
    decode: str | None = None
    rids: tuple[str, ...] = ()
    bootstrap_room: int | None = None
    attempts: int = 0  # pairs asked, of all choices; the fields above are of the last one
    lost_attempts: tuple[LostAttempt, ...] = ()
    degraded: tuple[Degraded, ...] = ()
    itl: ItlSummary = field(default_factory=ItlSummary)
    images: tuple[ImageRecord, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, stable keys."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Sample":
        """The inverse of `to_dict`; keys that a newer writer added are left out. Raises KeyError, ValueError, TypeError."""
        known = {f.name for f in fields(cls)}
        plain = {key: value for key, value in data.items() if key in known}
        plain["workload_class"] = WorkloadClass(plain["workload_class"])
        plain["slo_class"] = SloClass(plain["slo_class"])
        plain["outcome"] = Outcome(plain["outcome"])
        plain["timeline"] = Timeline(**plain["timeline"])
        plain["itl"] = ItlSummary(**plain.get("itl", {}))
        plain["images"] = tuple(ImageRecord(**image) for image in plain.get("images", ()))
        plain["lost_attempts"] = tuple(LostAttempt(**one) for one in plain.get("lost_attempts", ()))
        plain["degraded"] = tuple(
            Degraded(**{**one, "kind": Degradation(one["kind"])}) for one in plain.get("degraded", ())
        )
        plain["rids"] = tuple(plain.get("rids", ()))
        return cls(**plain)
