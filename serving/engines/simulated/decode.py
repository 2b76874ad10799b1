"""The decode half: pages for a request, its KV cache from prefill, then one token per step for the whole batch."""

from collections import deque

from serving.engines.simulated.effects import Preallocated, Token, Withdrawn
from serving.engines.simulated.pool import NoRoom
from serving.engines.simulated.shop import ABORTED, Shop, transfer_error
from serving.engines.simulated.state import Event, Job, State

HELD = (State.RECEIVING, State.TRANSFERRING, State.ARRIVED, State.RUNNING)
"""States in which a request holds pages on decode."""
ROOMS_KEPT = 256
"""Rooms served lately. A room is served once: of several samples of one request, which share a room, SGLang 0.5.23 answers
one and lets the others wait for ever."""
OUT_OF_MEMORY = "Out of memory even after retracting all other requests in the decode batch."


class DecodeWork:
    """Mutates the shop."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._batch: list[Job] = []
        self._deferred: dict[str, float] = {}
        self._written: set[str] = set()  # whose KV cache is here, but does not count as arrived
        self._rooms: deque[int] = deque(maxlen=ROOMS_KEPT)

    def take(self, job: Job) -> None:
        job.state = State.PREALLOC

    def allocate(self, now: float) -> None:
        """Pages for those who wait, oldest first, retracted ones before all; each keeps room for others to grow."""
        shop = self._shop
        for job in shop.within(State.RETRACTED):
            if not self._fits(job.context):
                return
            shop.pool.extend(job.rid, job.context)
            job.on(Event.ADMITTED, now)
        for job in shop.within(State.PREALLOC):
            if shop.count(*HELD) >= shop.limits.max_running or not self._fits(job.prompt_tokens):
                return
            shop.pool.extend(job.rid, job.prompt_tokens)
            job.on(Event.ALLOCATED, now)
            if job.fake:
                job.on(Event.RECEIVED, now)
            elif job.bootstrap:
                job.due = now + shop.limits.waiting_timeout_s
                shop.out.append(Preallocated(job.rid, job.room, job.bootstrap))

    def started(self, room: int, now: float) -> None:
        """Prefill has begun to write; from here on no timeout looks at the request (as in SGLang, PR 31800)."""
        for job in self._of(room, State.RECEIVING):
            job.on(Event.STARTED, now)

    def received(self, room: int, now: float) -> bool:
        """The KV cache is here; False when nobody waits for it. Room 0 never counts as arrived (decode.py:2634)."""
        jobs = self._of(room, State.RECEIVING, State.TRANSFERRING)
        if not jobs or room in self._rooms:
            return False
        job = jobs[0]
        if room == 0:
            if job.state is State.RECEIVING:
                job.on(Event.STARTED, now)
            self._written.add(job.rid)
            return True
        self._rooms.append(room)
        job.on(Event.RECEIVED, now)
        return True

    def refused(self, room: int, why: str, now: float) -> None:
        """Prefill says that the transfer failed."""
        for job in self._of(room, State.RECEIVING, State.TRANSFERRING):
            self._fail(job, why, now)

    def lost(self, bootstrap: str, why: str, now: float) -> None:
        """A prefill engine is gone, with every room that was to come from it."""
        for job in self._shop.within(State.RECEIVING, State.TRANSFERRING):
            if job.bootstrap == bootstrap:
                self._fail(job, why, now)

    def unreachable(self, rid: str, why: str, now: float) -> None:
        """The request's prefill could not be told of it."""
        job = self._shop.jobs.get(rid)
        if job is not None and job.state in (State.RECEIVING, State.TRANSFERRING):
            self._fail(job, why, now)

    def admit(self, now: float) -> None:
        """Arrived requests join the batch. Their first token came with the KV cache and is out at once."""
        for job in self._shop.within(State.ARRIVED):
            self._shop.observe("queue_time_seconds", now - job.since)
            names = (
                (State.PREALLOC, "decode_prepare"),
                (State.RECEIVING, "decode_bootstrap"),
                (State.TRANSFERRING, "decode_transferred"),
            )
            job.on(Event.ADMITTED, now)
            self._shop.stages(job, names)
            self._shop.observe("per_stage_req_latency_seconds", job.lasted[State.ARRIVED], "decode_waiting")
            self._shop.observe("kv_transfer_bootstrap_ms", job.lasted[State.RECEIVING] * 1e3)
            self._shop.observe("kv_transfer_alloc_ms", job.lasted[State.PREALLOC] * 1e3)
            self._grow(job, now)

    def start(self) -> float | None:
        """Begin a step; how long it takes, or None when nobody runs."""
        self._batch = self._shop.within(State.RUNNING)
        if not self._batch:
            return None
        context = sum(job.context for job in self._batch)
        return self._shop.compute_s(self._shop.costs.step(len(self._batch), context))

    def complete(self, now: float) -> None:
        """The step is over: a token for each that still runs."""
        batch, self._batch = self._batch, []
        for job in batch:
            if job.state is State.RUNNING:
                self._grow(job, now)
        self._shop.observe("realtime_tokens_total", len(batch), "decode")

    def retract_all(self, now: float) -> None:
        for job in self._shop.within(State.RUNNING):
            self._retract(job, now)

    def abort(self, job: Job, now: float) -> None:
        """500 while prefill takes part; after that the answer ends with finish_reason abort."""
        if job.state in (State.PREALLOC, State.RECEIVING, State.TRANSFERRING):
            self._fail(job, ABORTED, now, tell=True)
        else:
            self._shop.end(job, "abort", now)

    def timed_out(self, job: Job, now: float) -> None:
        waited = self._shop.limits.waiting_timeout_s
        why = f"Request {job.room} timed out after {waited:.1f}s in KVPoll.WaitingForInput"
        self._fail(job, why, now, tell=True)

    def timers(self, now: float) -> None:
        """Pages whose transfer was cut under way: free once nobody can write to them any more."""
        for owner in [owner for owner, at in self._deferred.items() if at <= now]:
            del self._deferred[owner]
            self._shop.pool.release(owner)

    def next_at(self) -> float | None:
        return min(self._deferred.values(), default=None)

    @property
    def deferred(self) -> int:
        return len(self._deferred)

    def _of(self, room: int, *states: State) -> list[Job]:
        return [job for job in self._shop.within(*states) if job.room == room and not job.fake]

    def _fits(self, tokens: int) -> bool:
        """SGLang's rule: what is free, less the reserve of each request that may still grow (decode.py)."""
        shop = self._shop
        reserve = shop.limits.reserved_tokens * shop.count(*HELD)
        return shop.pool.free_tokens - reserve >= tokens

    def _grow(self, job: Job, now: float) -> None:
        while True:
            try:
                self._shop.pool.extend(job.rid, 1)
                break
            except NoRoom:
                others = [one for one in self._shop.within(State.RUNNING) if one is not job]
                if not others:
                    self._shop.fail(job, OUT_OF_MEMORY, now)
                    return
                self._retract(min(others, key=lambda one: one.made), now)
        job.made += 1
        self._shop.out.append(Token(job.rid, job.made, now))
        if job.made >= job.answer_tokens:
            self._shop.end(job, job.ends_with, now)

    def _retract(self, job: Job, now: float) -> None:
        job.on(Event.RETRACTED, now)
        self._shop.pool.release(job.rid)
        self._shop.observe("num_retracted_requests_total", 1)

    def _fail(self, job: Job, why: str, now: float, *, tell: bool = False) -> None:
        if tell and job.state is not State.PREALLOC and not job.fake:
            self._shop.out.append(Withdrawn(job.room, job.bootstrap))
        if job.rid in self._written:
            self._written.discard(job.rid)
        elif job.state is State.TRANSFERRING:
            owner = f"deferred {job.rid} {now}"
            self._shop.pool.rename(job.rid, owner)
            self._deferred[owner] = now + self._shop.limits.deferred_release_s
        self._shop.observe("num_transfer_failed_reqs_total", 1)
        self._shop.fail(job, transfer_error("Decode", "transfer", job, why), now)
