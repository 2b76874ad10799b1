"""When a process starts, starts again, and when it is given up: a table without clock or process.

              BECAME_READY           EXITED                    BACKOFF_OVER   STOP
    STARTING  READY                  GIVEN_UP or BACKOFF       -              STOPPING
    READY     -                      BACKOFF or GIVEN_UP       -              STOPPING
    BACKOFF   -                      -                         STARTING       STOPPED
    STOPPING  (too late: ignored)    STOPPED                   -              (again: ignored)

GIVEN_UP comes at once for a process that was never ready: a wrong flag or a missing library does not heal by
itself. One that was ready before is given up after `crash_loop_exits` exits within `crash_loop_window_s`.
"""

from collections import deque
from enum import Enum

from serving.config import SupervisorConfig


class State(Enum):
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    STOPPED = "stopped"
    GIVEN_UP = "given_up"


class Event(Enum):
    BECAME_READY = "became_ready"
    EXITED = "exited"
    BACKOFF_OVER = "backoff_over"
    STOP = "stop"


class IllegalEvent(RuntimeError):
    """A bug of the caller: this state knows no such event. Nothing has changed."""


class Restart:
    """One process's state."""

    def __init__(self, config: SupervisorConfig) -> None:
        self._config = config
        self._exits: deque[float] = deque()
        self._was_ready = False
        self.state = State.STARTING
        self.starts = 1

    def __repr__(self) -> str:
        return f"<Restart {self.state.value}, {self.starts} starts, {len(self._exits)} recent exits>"

    @property
    def crash_loop(self) -> bool:
        """Whether it was given up for exiting too often, not for never having been ready."""
        return self.state is State.GIVEN_UP and self._was_ready

    @property
    def wait_s(self) -> float:
        """How long this backoff lasts: doubled for each recent exit after the first, up to the longest."""
        doublings = max(0, len(self._exits) - 1)
        return float(min(self._config.backoff_s * 2.0**doublings, self._config.max_backoff_s))

    def apply(self, event: Event, now_s: float) -> State:
        """The state after the event. Raises IllegalEvent."""
        match self.state, event:
            case State.STARTING, Event.BECAME_READY:
                self._was_ready = True
                self.state = State.READY
            case ((State.STARTING | State.READY), Event.EXITED):
                self.state = State.BACKOFF if self._may_start_again(now_s) else State.GIVEN_UP
            case State.BACKOFF, Event.BACKOFF_OVER:
                self.starts += 1
                self.state = State.STARTING
            case ((State.STARTING | State.READY), Event.STOP):
                self.state = State.STOPPING
            case ((State.BACKOFF | State.STOPPED | State.GIVEN_UP), Event.STOP):
                self.state = State.GIVEN_UP if self.state is State.GIVEN_UP else State.STOPPED
            case State.STOPPING, (Event.STOP | Event.BECAME_READY):
                pass
            case State.STOPPING, Event.EXITED:
                self.state = State.STOPPED
            case _:
                raise IllegalEvent(f"{event.value} in {self.state.value}")
        return self.state

    def _may_start_again(self, now_s: float) -> bool:
        self._exits.append(now_s)
        while self._exits[0] <= now_s - self._config.crash_loop_window_s:
            self._exits.popleft()
        return self._was_ready and len(self._exits) < self._config.crash_loop_exits
