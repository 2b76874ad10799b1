"""What each instance has been given, and what part of the work it should get. Pure.

    load = outstanding tokens / weight, of equal ones (outstanding requests + 1) / weight

Outstanding on a prefill: the prompts that it has not prefilled yet. On a decode: prompt + max_tokens of each request until it
ends; what is generated becomes context, so the sum of context and remaining output stays as it is.

A drained instance gets nothing new; what it has runs to its end, and it goes on being looked at.
"""

from dataclasses import dataclass, field

from serving.attempt import Pair
from serving.service import EngineEndpoint
from toolkit.core.sample import WorkloadClass


@dataclass(frozen=True, slots=True)
class Want:
    """What an attempt asks of a pair. Tokens: 0 where they are not known, and then only requests are counted."""

    prompt_tokens: int = 0
    output_tokens: int = 0  # at most
    workload_class: WorkloadClass = WorkloadClass.UNCLASSIFIED
    key: bytes | None = None  # of what may be cached (affinity.py)

    @property
    def held_tokens(self) -> int:
        """What it may hold on its decode at most."""
        return self.prompt_tokens + self.output_tokens


@dataclass(slots=True)
class Instance:
    """One engine as a place for work."""

    endpoint: EngineEndpoint
    weight: float = 1.0
    drained: bool = False
    drained_until: float | None = None  # when that is to end, if it is known
    requests: int = 0
    tokens: int = 0

    @property
    def ends(self) -> float:
        """When its drain is to end."""
        return float("inf") if self.drained_until is None else self.drained_until

    def load_with(self, tokens: int) -> tuple[float, float]:
        """Its load once it had one request of so many tokens more; the least is the best."""
        return (self.tokens + tokens) / self.weight, (self.requests + 1) / self.weight

    def add(self, tokens: int) -> None:
        self.tokens += tokens
        self.requests += 1

    def done(self, tokens: int) -> None:
        self.tokens -= tokens
        self.requests -= 1


@dataclass(slots=True, eq=False)
class Taken:
    """A pair that somebody works on, until it is given back."""

    pair: Pair
    want: Want = field(default_factory=Want)
    prefilled: bool = False
    given_back: bool = False
