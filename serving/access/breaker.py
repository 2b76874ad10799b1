"""When to stop calling a service that fails, and when to ask it again. No clock, no I/O; time is passed in, seconds.

                a call succeeds       a call fails                         the hold is over
    CLOSED      failures forgotten    after `failures` in a row: OPEN      -
    OPEN        (nothing is called)   (nothing is called)                  HALF_OPEN
    HALF_OPEN   CLOSED                OPEN, held twice as long             -

HALF_OPEN lets one call through at a time: the probe. A call that began before the state last changed counts no more,
so that many that fail together open it once and lengthen nothing.
"""

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """Opens after `failures` in a row, for `hold_s`; doubled for each failed probe, up to `most_hold_s`."""

    failures: int = 3
    hold_s: float = 1.0
    most_hold_s: float = 60.0


@dataclass(slots=True, eq=False)
class Pass:
    """Leave for one call; hand it back with what came of the call. What is said of it first is what counts."""

    era: int
    spent: bool = False


class Breaker:
    """One service's standing."""

    def __init__(self, rule: BreakerRule) -> None:
        self._rule = rule
        self._era = 0
        self._failures = 0
        self._opened_at: float | None = None
        self._hold_s = rule.hold_s
        self._probe: Pass | None = None

    def state(self, now: float) -> State:
        if self._opened_at is None:
            return State.CLOSED
        return State.HALF_OPEN if now >= self._opened_at + self._hold_s else State.OPEN

    def retry_after_s(self, now: float) -> float:
        """Time until a call may be made again; 0 where one may be."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._hold_s - now)

    def enter(self, now: float) -> Pass | None:
        """Leave for a call, or None: do without. Every pass must come back by one of the next three."""
        state = self.state(now)
        if state is State.CLOSED:
            return Pass(self._era)
        if state is State.OPEN or self._probe is not None:
            return None
        self._era += 1
        self._probe = Pass(self._era)
        return self._probe

    def succeeded(self, held: Pass) -> None:
        """The service answered."""
        if not self._counts(held):
            return
        if self._probe is not None:
            self._era += 1
        self._probe = self._opened_at = None
        self._failures, self._hold_s = 0, self._rule.hold_s

    def failed(self, held: Pass, now: float) -> None:
        """The service did not answer, or not as it should."""
        if not self._counts(held):
            return
        if self._probe is not None:
            self._open(now, min(2 * self._hold_s, self._rule.most_hold_s))
            return
        self._failures += 1
        if self._failures >= self._rule.failures:
            self._open(now, self._rule.hold_s)

    def left(self, held: Pass) -> None:
        """The call was given up by its caller: it says nothing, and another may be the probe."""
        if self._counts(held) and held is self._probe:
            self._probe = None

    def _counts(self, held: Pass) -> bool:
        counts = held.era == self._era and not held.spent
        held.spent = True
        return counts

    def _open(self, now: float, hold_s: float) -> None:
        self._era += 1
        self._failures, self._probe = 0, None
        self._opened_at, self._hold_s = now, hold_s
