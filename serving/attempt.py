"""What one attempt over a pair is: who takes part, how long it may take, how far it came."""

from dataclasses import dataclass, field
from typing import Any

from serving.service import EngineEndpoint
from toolkit.core.errors import EngineFailed


class LegLost(EngineFailed):
    """The connection to an engine broke; `engine` should be looked at before it gets more work."""

    def __init__(self, message: str, engine: str, internal: str = "") -> None:
        super().__init__(message, internal=internal)
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
    whole_s: longest non-streamed answer after its prefill. least_s: what an attempt takes to its first token at least."""

    deadline: float
    stall_s: float
    whole_s: float
    least_s: float = 0.0

    @property
    def begin_by(self) -> float:
        """The last instant at which an attempt may begin."""
        return self.deadline - self.least_s


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
        self.elsewhere()
        self.pair = pair
        self.attempts += 1

    def elsewhere(self) -> None:
        """No pair works on it any more."""
        self.pair = None
        self.dispatched_at = self.prefill_done_at = self.first_token_at = self.last_token_at = None
        self.gaps_s, self.usage, self.finish_reason, self.token_events = [], {}, None, 0
