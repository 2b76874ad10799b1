"""What a scheduler asks the world to do, and what it tells of itself. Values only."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["prefill", "decode", "unified"]
News = Literal["started", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Token:
    """The answer's token `number` (from 1) is out."""

    rid: str
    number: int
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is whole ("length", "stop") or was cut ("abort") after `made` tokens."""

    rid: str
    reason: str
    made: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed before its end; status as SGLang's FINISH_ABORT carries it."""

    rid: str
    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Preallocated:
    """Decode to prefill: there are pages for this room."""

    rid: str
    room: int
    bootstrap: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Decode to prefill: nobody waits for this room any more."""

    room: int
    bootstrap: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Prefill to decode: what became of the room's KV cache."""

    rid: str
    room: int
    session: str
    news: News
    tokens: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """Prefill: look whether a failed session is alive."""

    session: str


Effect = Token | Ended | Failed | Preallocated | Withdrawn | Deliver | Probe


@dataclass(frozen=True, slots=True)
class Observation:
    """One value for a histogram or counter of /metrics, by its SGLang name without prefix."""

    metric: str
    value: float
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and times of one engine; SGLang's defaults. Seconds and tokens.

    reserved_tokens: decode keeps so many free for each request it has, so that answers can grow.
    """

    max_total_tokens: int = 32_768
    page_size: int = 1
    max_running: int = 64
    chunk_tokens: int = 8192
    context_tokens: int = 32_768
    reserved_tokens: int = 512
    bootstrap_timeout_s: float = 300.0
    waiting_timeout_s: float = 300.0
    deferred_release_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What one look at the scheduler shows; stale until the next one is published."""

    at: float
    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    used_tokens: int = 0
    free_tokens: int = 0
    context_tokens: int = 0
    throughput: float = 0.0
    bootstrap: int = 0
    inflight: int = 0
    prealloc: int = 0
    transfer: int = 0
    retracted: int = 0
    paused: int = 0
    deferred: int = 0
    prefill_tokens: int = 0
    prefill_busy_s: float = 0.0
    transfer_s: float = 0.0
    transfer_bytes_per_s: float = 0.0
