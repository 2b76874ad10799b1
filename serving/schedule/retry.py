"""Whether a failed attempt is made again, and after which wait. No clock, no I/O; time and randomness are passed in, seconds.

    may be tried again      more than one attempt left, time left before the deadline, a pair for it, budget left
    waits                   full jitter: anywhere between 0 and min(cap_s, base_s x 2^retries so far)
    budget                  retries <= budget_least + budget_share x requests, over any window_s; of all gateways that share

Full jitter: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015; of the shapes compared there it made
the fewest calls. The budget is that of Finagle (blog, "Retry Budgets", 2016): each client's own limit does not bound the
sum, a share of all does. Why each bound: docs/decisions/0023.
"""

import random
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from serving.retry_config import RetryConfig


class Cause(StrEnum):
    """Why an attempt failed, where trying again may help."""

    UNREACHABLE = "unreachable"  # the connection to an engine broke
    TRANSFER = "transfer"  # the KV cache did not get from prefill to decode
    FAILED = "failed"  # an engine failed in another way: 5xx, an abort, nonsense
    STALLED = "stalled"  # nothing came out of the pair for too long
    BUSY = "busy"  # 429 or 503: backpressure, no fault


class Refusal(StrEnum):
    """Why a failed attempt is not made again."""

    TOO_MANY = "too_many"
    NO_PAIR = "no_pair"
    NO_TIME = "no_time"
    NO_BUDGET = "no_budget"


SAME_PAIR = frozenset({Cause.FAILED})
"""Causes after which the same pair may be asked again where there is no other. A session that SGLang has blacklisted fails at
once for 30 s or more; a busy or silent engine needs less work, not more."""

SLICES = 10


@dataclass(frozen=True, slots=True)
class Fleet:
    """Gateways that share one budget: how many, this one's place among them from 0, and what the others had of late. known:
    whether that is so now; else each has its part of the least, and the share of its own requests."""

    place: int = 0
    gateways: int = 1
    requests: int = 0
    retries: int = 0
    known: bool = True


class RetryBudget:
    """Requests and retries of the last window_s, in SLICES slices that go out of it whole."""

    def __init__(self, share: float, least: int, window_s: float) -> None:
        self._share = share
        self._least = least
        self._slice_s = window_s / SLICES
        self._slices: deque[list[int]] = deque(maxlen=SLICES)  # of [slice's number, requests, retries]
        self.fleet = Fleet()

    def retune(self, share: float, least: int) -> None:
        """Another budget from now on; what was counted counts on."""
        self._share, self._least = share, least

    def arrived(self, now: float) -> None:
        """A request began."""
        self._at(now)[1] += 1

    def recent(self, now: float) -> tuple[int, int]:
        """Requests and retries here within the window."""
        self._at(now)
        return sum(one[1] for one in self._slices), sum(one[2] for one in self._slices)

    def left(self, now: float) -> int:
        """How many retries may be made now. Of what is left to all, each gateway's part: in sum it is what is left."""
        requests, retries = self.recent(now)
        fleet = self.fleet
        if not fleet.known:
            least = (self._least + fleet.place) // fleet.gateways
            return max(0, int(least + self._share * requests + 1e-9) - retries)
        allowed = int(self._least + self._share * (requests + fleet.requests) + 1e-9)
        return max(0, (allowed - retries - fleet.retries + fleet.place) // fleet.gateways)

    def take(self, now: float) -> bool:
        """One retry; False where there is none left."""
        if self.left(now) < 1:
            return False
        self._at(now)[2] += 1
        return True

    def _at(self, now: float) -> list[int]:
        number = int(now / self._slice_s)
        while self._slices and self._slices[0][0] <= number - SLICES:
            self._slices.popleft()
        if not self._slices or self._slices[-1][0] < number:
            self._slices.append([number, 0, 0])
        return self._slices[-1]


class Retries:
    """Decides for all requests of one gateway; owns their budget."""

    def __init__(self, config: RetryConfig, source: random.Random) -> None:
        self._config = config
        self._source = source
        self._budget = RetryBudget(config.budget_share, config.budget_least, config.window_s)

    def retune(self, config: RetryConfig) -> None:
        """Other bounds from now on. The window cannot change: what was counted was counted in it."""
        assert config.window_s == self._config.window_s
        self._config = config
        self._budget.retune(config.budget_share, config.budget_least)

    def arrived(self, now: float) -> None:
        """A request makes its first attempt."""
        self._budget.arrived(now)

    def left(self, now: float) -> int:
        """Retries that the budget allows now."""
        return self._budget.left(now)

    def recent(self, now: float) -> tuple[int, int]:
        """Requests and retries of late, to be told to gateways that share the budget."""
        return self._budget.recent(now)

    def share(self, fleet: Fleet) -> None:
        """With whom the budget is shared from now on."""
        self._budget.fleet = fleet

    def ask(
        self, cause: Cause, attempts: int, *, now: float, deadline: float, other: bool
    ) -> float | Refusal:
        """The wait before the next attempt, whose place in the budget is taken with it; or why there is none.

        attempts: made so far. deadline: by when the first token must be out. other: a pair that this request has not
        tried is in rotation. At least half of the time left is kept for the attempt itself.
        """
        config = self._config
        if attempts >= config.max_attempts:
            return Refusal.TOO_MANY
        if not other and cause not in SAME_PAIR:
            return Refusal.NO_PAIR
        if now >= deadline:
            return Refusal.NO_TIME
        if not self._budget.take(now):
            return Refusal.NO_BUDGET
        if cause is Cause.STALLED:
            return 0.0  # it has waited
        ceiling_s = min(config.cap_s, config.base_s * 2.0 ** (attempts - 1), (deadline - now) / 2)
        return self._source.uniform(0.0, ceiling_s)

    def stall_s(self, left_s: float) -> float | None:
        """How long an attempt with so much time left bears a silent pair; None: to its end."""
        share = self._config.stall_share
        return None if share >= 1 or self._config.max_attempts == 1 else share * left_s
