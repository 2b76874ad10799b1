"""One engine's scheduler without I/O: requests in, effects out, time as an argument.

Everything that takes time is a deadline: `advance(now)` does all that was due until now, each at its own instant, so a late
caller changes when things are seen, not when they happened. One device computes one batch at a time; prompts go first.
"""

import random
from collections.abc import Callable

from serving.engines.simulated.decode import DecodeWork
from serving.engines.simulated.effects import Effect, Limits, Load, Observation, Role
from serving.engines.simulated.faults import Faults
from serving.engines.simulated.look import look
from serving.engines.simulated.model import Costs
from serving.engines.simulated.prefill import PrefillWork
from serving.engines.simulated.shop import Shop
from serving.engines.simulated.state import Job, State

LOAD_STEPS = 15
"""Decode steps between two snapshots for /v1/loads; prefill and an idle engine publish at once (observability.py:84)."""
STALL_S = 0.05
"""A look at most this old while requests are parked and nothing is computed (scheduler.py:411)."""
GAUGE_STEPS = 40
"""Decode steps between two looks of the Prometheus gauges (--decode-log-interval)."""

PREFILL_STATES = frozenset({State.BOOTSTRAP, State.WAITING, State.COMPUTING, State.SENDING})


class DuplicateRid(Exception):
    """A live request has this rid."""


class Scheduler:
    """The core of a simulated engine."""

    def __init__(self, role: Role, costs: Costs, limits: Limits, now: float) -> None:
        self.role = role
        self._shop = Shop(costs, limits)
        self._prefill = PrefillWork(self._shop, hand_over=role == "prefill")
        self._decode = DecodeWork(self._shop)
        self._device: tuple[float, Callable[[float], None]] | None = None
        self._floor = now
        self._frozen = False
        self._unheard: list[Callable[[float], object]] = []
        self._paused = False
        self._steps = 0
        self._tokens = 0
        self._published = now
        self._throughput = 0.0
        self.load = self.gauges = self._look(now)

    # what comes in

    def submit(self, job: Job, now: float) -> None:
        """Raises DuplicateRid."""
        if job.rid in self._shop.jobs:
            raise DuplicateRid(job.rid)
        job.since = now
        if self.role == "decode":
            self._decode.take(job)
        else:
            self._prefill.take(job, now)
        self._shop.jobs[job.rid] = job
        self.advance(now)

    def abort(self, rid: str, now: float, *, everything: bool = False) -> None:
        """End every request whose rid begins with `rid`, if one has exactly that rid: the tokenizer only passes on rids
        that it knows (tokenizer_manager.py:2241), the scheduler then matches prefixes (scheduler.py:5675)."""
        if not everything and rid not in self._shop.jobs:
            return
        if self._put_off(lambda now: self.abort(rid, now, everything=everything)):
            return
        for job in list(self._shop.jobs.values()):
            if everything or job.rid.startswith(rid):
                self._abort(job, now)
        self.advance(now)

    def paired(self, room: int, session: str, now: float) -> None:
        if self._put_off(lambda now: self.paired(room, session, now)):
            return
        self._prefill.paired(room, session, now)
        self.advance(now)

    def withdrawn(self, room: int, now: float) -> None:
        if self._put_off(lambda now: self.withdrawn(room, now)):
            return
        self._prefill.withdrawn(room, now)
        self.advance(now)

    def delivered(self, rid: str, fault: str, now: float) -> None:
        if self._put_off(lambda now: self.delivered(rid, fault, now)):
            return
        self._prefill.delivered(rid, fault, now)
        self.advance(now)

    def probed(self, session: str, alive: bool, now: float) -> None:
        self._prefill.sessions.probed(session, alive, now)

    def started(self, room: int, now: float) -> None:
        if self._put_off(lambda now: self.started(room, now)):
            return
        self._decode.started(room, now)

    def received(self, room: int, now: float) -> bool:
        """False when nobody waits for the room; a frozen engine finds out later."""
        if self._put_off(lambda now: self.received(room, now)):
            return True
        taken = self._decode.received(room, now)
        self.advance(now)
        return taken

    def refused(self, room: int, why: str, now: float) -> None:
        if self._put_off(lambda now: self.refused(room, why, now)):
            return
        self._decode.refused(room, why, now)
        self.advance(now)

    def lost(self, bootstrap: str, why: str, now: float) -> None:
        if self._put_off(lambda now: self.lost(bootstrap, why, now)):
            return
        self._decode.lost(bootstrap, why, now)
        self.advance(now)

    def unreachable(self, rid: str, why: str, now: float) -> None:
        if self._put_off(lambda now: self.unreachable(rid, why, now)):
            return
        self._decode.unreachable(rid, why, now)
        self.advance(now)

    def pause(self, mode: str, now: float) -> None:
        """abort: end all. retract: running requests give their pages back. in_place: only stand still."""
        if mode == "abort":
            self.abort("", now, everything=True)
        elif mode == "retract":
            self._decode.retract_all(now)
        self._paused = True

    def resume(self, now: float) -> None:
        self._paused = False
        self.advance(now)

    def flush(self) -> bool:
        """Whether the engine was idle, and so could flush its cache."""
        if self._shop.jobs:
            return False
        self._shop.pool.flush()
        return True

    @property
    def faults(self) -> Faults:
        return self._shop.faults

    def set_faults(self, faults: Faults, now: float) -> None:
        if faults.seed != self._shop.faults.seed:
            self._shop.source = random.Random(faults.seed)
        self._shop.faults = faults
        self.advance(now)

    # time

    def advance(self, now: float) -> None:
        """Do all that is due by now."""
        if self.faults.freeze:
            self._frozen = True
            return
        if self._frozen:  # nothing went on meanwhile, so nothing is caught up
            self._frozen, self._floor = False, now
            unheard, self._unheard = self._unheard, []
            for hear in unheard:
                hear(now)
        while (due := self._due()) is not None and due <= now:
            self._at(max(due, self._floor))
        self._kick(now)

    def next_at(self) -> float | None:
        """When `advance` should be called next; None: when something comes in."""
        return None if self.faults.freeze else self._due()

    def loads(self, now: float) -> Load:
        """What /v1/loads shows: as old as the last publication, but for an engine that stands still with requests."""
        if self._device is None and not self.faults.freeze and now - self.load.at >= STALL_S:
            self.load = self._look(now)
        return self.load

    def take_effects(self) -> list[Effect]:
        effects, self._shop.out = self._shop.out, []
        return effects

    def take_observations(self) -> list[Observation]:
        seen, self._shop.seen = self._shop.seen, []
        return seen

    # what can be seen

    @property
    def live(self) -> int:
        return len(self._shop.jobs)

    @property
    def recoveries(self) -> int:
        return self._prefill.sessions.recoveries

    @property
    def limits(self) -> Limits:
        return self._shop.limits

    @property
    def costs(self) -> Costs:
        return self._shop.costs

    def check(self) -> None:
        """AssertionError unless the KV pool is conserved, and empty but for leaks and deferred pages when idle."""
        pool = self._shop.pool
        pool.check()
        if not self._shop.jobs and not self._decode.deferred:
            assert pool.used_tokens == pool.leaked_pages * pool.page_size

    def _put_off(self, hear: Callable[[float], object]) -> bool:
        """Whether the scheduler stands still; what it should have heard is then kept for its next step."""
        if self.faults.freeze:
            self._unheard.append(hear)
        return self.faults.freeze

    def _abort(self, job: Job, now: float) -> None:
        if job.state in PREFILL_STATES:
            self._prefill.abort(job, now)
        else:
            self._decode.abort(job, now)

    def _due(self) -> float | None:
        times = [job.due for job in self._shop.jobs.values() if job.due is not None]
        times += [at for at in (self._prefill.next_at(), self._decode.next_at()) if at is not None]
        if self._device is not None:
            times.append(self._device[0])
        return min(times, default=None)

    def _at(self, now: float) -> None:
        for job in [one for one in self._shop.jobs.values() if one.due is not None and one.due <= now]:
            if job.state is State.BOOTSTRAP:
                self._prefill.timed_out(job, now)
            else:
                self._decode.timed_out(job, now)
        self._prefill.timers(now)
        self._decode.timers(now)
        if self._device is not None and self._device[0] <= now:
            _, complete = self._device
            self._device = None
            complete(now)
        self._kick(now)

    def _kick(self, now: float) -> None:
        """Give the device work, if it has none."""
        self._decode.allocate(now)
        if self._device is not None or self._paused:
            return
        self._decode.admit(now)
        if self.role != "decode" and (seconds := self._prefill.start(now)) is not None:
            self._device = (now + seconds, self._computed)
        elif (seconds := self._decode.start()) is not None:
            self._device = (now + seconds, self._stepped)
        elif self.load.at < now and not self._shop.jobs:
            self._publish(now)

    def _computed(self, now: float) -> None:
        self._prefill.complete(now)
        self._publish(now)

    def _stepped(self, now: float) -> None:
        self._tokens += self._shop.count(State.RUNNING)
        self._decode.complete(now)
        self._steps += 1
        if self._steps % LOAD_STEPS == 0:
            self.load = self._look(now)
        if self._steps % GAUGE_STEPS == 0:
            self.gauges = self._look(now)

    def _publish(self, now: float) -> None:
        self.load = self.gauges = self._look(now)

    def _look(self, now: float) -> Load:
        span = now - self._published
        if span > 0:
            self._throughput, self._tokens, self._published = self._tokens / span, 0, now
        work = (self._shop, self._prefill, self._decode)
        return look(*work, now, throughput=self._throughput, paused=self._paused)
