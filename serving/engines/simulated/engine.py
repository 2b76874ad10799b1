"""The scheduler in real time: turns its deadlines into timers, and its effects into what requests and peers hear."""

import asyncio
from collections.abc import Callable

from serving.engines.simulated.effects import (
    Deliver,
    Effect,
    Ended,
    Failed,
    Observation,
    Preallocated,
    Probe,
    Token,
    Withdrawn,
)
from serving.engines.simulated.faults import Faults
from serving.engines.simulated.scheduler import Scheduler
from serving.engines.simulated.state import Job
from toolkit.core.clock import Clock

Heard = Token | Ended | Failed
ForPeer = Preallocated | Withdrawn | Deliver | Probe


class Engine:
    """Owns the one timer, and knows who listens to which request. Everything runs on the loop of its first call."""

    def __init__(
        self, scheduler: Scheduler, clock: Clock, on_seen: Callable[[list[Observation]], None]
    ) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.to_peer: Callable[[ForPeer], None] = lambda _: None
        self._on_seen = on_seen
        self._listeners: dict[str, asyncio.Queue[Heard | None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.heard_at = clock.monotonic()
        self.going = asyncio.Event()  # not paused
        self.going.set()

    def submit(self, job: Job, events: asyncio.Queue[Heard | None]) -> None:
        """What happens to the request goes into `events`, its end last. Raises DuplicateRid."""
        self.scheduler.submit(job, self.now)
        self._listeners[job.rid] = events
        self.settle()

    def abort(self, rid: str, *, everything: bool = False) -> None:
        if rid or everything:
            self.scheduler.abort(rid, self.now, everything=everything)
            self.settle()

    def pause(self, mode: str) -> None:
        self.going.clear()
        self.scheduler.pause(mode, self.now)
        self.settle()

    def resume(self) -> None:
        self.going.set()
        self.scheduler.resume(self.now)
        self.settle()

    def set_faults(self, faults: Faults) -> None:
        self.scheduler.set_faults(faults, self.now)
        self.settle()

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def settle(self) -> None:
        """Pass on what the scheduler has put out, and set the timer anew. Call after every change."""
        for effect in self.scheduler.take_effects():
            self._pass_on(effect)
        seen = self.scheduler.take_observations()
        if seen:
            self._on_seen(seen)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.scheduler.next_at()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - self.now), self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._timer = None
        self.scheduler.advance(self.now)
        self.settle()

    def _pass_on(self, effect: Effect) -> None:
        if not isinstance(effect, Heard):
            self.to_peer(effect)
            return
        self.heard_at = self.now
        events = self._listeners.get(effect.rid)
        if events is None:
            return
        events.put_nowait(effect)
        if not isinstance(effect, Token):
            del self._listeners[effect.rid]
