"""The prefill half: wait for decode, compute prompts in batches, send their KV caches."""

from dataclasses import dataclass

from serving.engines.simulated.effects import Deliver, News, Probe, Token
from serving.engines.simulated.link import Link
from serving.engines.simulated.pool import NoRoom
from serving.engines.simulated.sessions import SessionBlacklist
from serving.engines.simulated.shop import ABORTED, Shop, transfer_error
from serving.engines.simulated.state import Event, Job, State

EARLY_KEPT_S = 120.0
"""How long a pairing waits for its request: SGLang cleans such entries each 120 s (conn.py, ENTRY_CLEANUP)."""
SLOW_TRANSFER_S = 1.0
"""A transfer that takes longer tells decode that it has begun, so that decode's own timeout lets it be."""


@dataclass(frozen=True, slots=True)
class _Part:
    job: Job
    tokens: int


class PrefillWork:
    """Mutates the shop. `hand_over`: whether computed requests go to a decode engine (else they run here)."""

    def __init__(self, shop: Shop, hand_over: bool) -> None:
        self._shop = shop
        self._hand_over = hand_over
        self._batch: list[_Part] = []
        self._early: dict[int, tuple[str, float]] = {}
        self._link = Link(shop.costs.transfer_bytes_per_s)
        self.sessions = SessionBlacklist()
        self.tokens = 0
        self.busy_s = 0.0
        self.last_transfer: tuple[float, float] = (0.0, 0.0)  # seconds, bytes per second

    def take(self, job: Job, now: float) -> None:
        """A new request, in the state in which it starts."""
        if not self._hand_over or job.fake:
            job.state = State.WAITING
            return
        job.state = State.BOOTSTRAP
        job.due = now + self._shop.limits.bootstrap_timeout_s
        early = self._early.pop(job.room, None)
        if early is not None:
            self._pair(job, early[0], now)

    def paired(self, room: int, session: str, now: float) -> None:
        """Decode has pages for the room. May come before the request itself."""
        self._early = {one: kept for one, kept in self._early.items() if now - kept[1] < EARLY_KEPT_S}
        jobs = [job for job in self._shop.within(State.BOOTSTRAP) if job.room == room]
        for job in jobs:
            self._pair(job, session, now)
        if not jobs:
            self._early[room] = (session, now)

    def withdrawn(self, room: int, now: float) -> None:
        """Decode does not wait for the room any more."""
        self._early.pop(room, None)
        waiting = (State.WAITING, State.SENDING)
        for job in [one for one in self._shop.within(*waiting) if one.room == room and one.session]:
            self._fail(job, "transfer", ABORTED, now, tell=False)

    def start(self, now: float) -> float | None:
        """Form the next batch; how long it computes, or None when there is nothing to compute."""
        shop, left, seconds = self._shop, self._shop.limits.chunk_tokens, 0.0
        for job in shop.within(State.COMPUTING, State.WAITING):
            if left <= 0:
                break
            if job.state is State.WAITING:
                if (
                    not self._hand_over
                    and shop.count(State.RUNNING, State.COMPUTING) >= shop.limits.max_running
                ):
                    break
                try:
                    shop.pool.extend(job.rid, job.prompt_tokens)
                except NoRoom:
                    break
                shop.observe("queue_time_seconds", now - job.since)
                job.on(Event.SCHEDULED, now)
                seconds += shop.costs.encode(job.image_tokens)
            tokens = min(left, job.prompt_tokens - job.computed)
            left -= tokens
            seconds += shop.costs.prefill(tokens, job.computed)
            self._batch.append(_Part(job, tokens))
        if not self._batch:
            return None
        seconds = shop.compute_s(seconds + shop.costs.prefill_s)
        self.busy_s += seconds
        return seconds

    def complete(self, now: float) -> None:
        """The batch is computed."""
        batch, self._batch = self._batch, []
        for job, tokens in ((part.job, part.tokens) for part in batch):
            self.tokens += tokens
            self._shop.observe("realtime_tokens_total", tokens, "prefill_compute")
            job.computed += tokens
            if job.state is not State.COMPUTING or job.computed < job.prompt_tokens:
                continue
            if self._hand_over:
                job.on(Event.COMPUTED, now)
                self._send(job, now)
            else:
                job.on(Event.ADMITTED, now)
                self._first_token(job, now)
                if job.made >= job.answer_tokens:
                    self._shop.end(job, job.ends_with, now)

    def next_at(self) -> float | None:
        """When the next transfer starts or ends, or a failed session is probed."""
        times = (self._link.next_at(), self.sessions.next_at())
        return min((at for at in times if at is not None), default=None)

    def timers(self, now: float) -> None:
        """Transfers that have ended by now, sessions to probe."""
        for rid in self._link.until(now):
            job = self._shop.jobs.get(rid)
            if job is not None and job.state is State.SENDING:
                self._sent(job, now)
        self._shop.out += [Probe(session) for session in self.sessions.due(now)]

    def delivered(self, rid: str, fault: str, now: float) -> None:
        """Decode has taken the KV cache (fault empty), or could not be reached."""
        job = self._shop.jobs.get(rid)
        if job is None or job.state is not State.SENDING:
            return
        if fault:
            self._lost(job, fault, now)
            return
        shop = self._shop
        seconds, size = job.sending_s, shop.costs.kv_bytes(job.prompt_tokens)
        self.last_transfer = (seconds, size / seconds if seconds else 0.0)
        shop.observe("kv_transfer_latency_ms", seconds * 1e3)
        shop.observe("kv_transfer_total_mb", size / 1e6)
        shop.observe("kv_transfer_speed_gb_s", self.last_transfer[1] / 1e9)
        shop.observe("kv_transfer_bootstrap_ms", job.lasted.get(State.BOOTSTRAP, 0.0) * 1e3)
        shop.observe("kv_transfer_alloc_ms", 0.0)
        self._finish(job, now)

    def abort(self, job: Job, now: float) -> None:
        """In SGLang's ways: 500 while another engine takes part, finish_reason abort where it is only queued here."""
        if job.state is State.BOOTSTRAP:
            self._fail(job, "bootstrap", ABORTED, now)
        elif job.state is State.SENDING:
            self._fail(job, "transfer", ABORTED, now)
        else:
            self._tell(job, "failed", ABORTED)
            self._shop.end(job, "abort", now)

    def timed_out(self, job: Job, now: float) -> None:
        waited = self._shop.limits.bootstrap_timeout_s
        why = f"Request {job.room} timed out after {waited:.1f}s in KVPoll.Bootstrapping"
        self._shop.observe("num_bootstrap_failed_reqs_total", 1)
        self._fail(job, "bootstrap", why, now)

    def _pair(self, job: Job, session: str, now: float) -> None:
        job.session = session
        job.on(Event.PAIRED, now)

    def _send(self, job: Job, now: float) -> None:
        shop = self._shop
        if job.fake:
            self._finish(job, now)
            return
        assert job.session is not None
        if self.sessions.blocks(job.session, now):
            self._lost(job, f"remote mooncake session {job.session} is not alive", now)
            return
        latency_s = shop.costs.transfer_s + shop.faults.transfer_delay_s
        size = shop.costs.kv_bytes(job.prompt_tokens)
        expected_s = latency_s + size * (len(self._link) + 1) / shop.costs.transfer_bytes_per_s
        if shop.faults.stuck_transferring:
            self._tell(job, "started")
            return
        if expected_s > SLOW_TRANSFER_S:
            self._tell(job, "started")
        self._link.begin(job.rid, size, now + latency_s)

    def _sent(self, job: Job, now: float) -> None:
        job.sending_s = now - job.since
        faults, source = self._shop.faults, self._shop.source
        if source.random() < faults.transfer_failure_rate:
            self._lost(job, f"Failed to send kv chunk of {job.room} to {job.session}", now)
        elif faults.poll_failure_rate and source.random() < faults.poll_failure_rate:
            self._fail(job, "transfer", "Failed due to an unknown reason from another rank", now)
        else:
            self._tell(job, "done")

    def _finish(self, job: Job, now: float) -> None:
        self._first_token(job, now)
        names = (
            (State.BOOTSTRAP, "prefill_bootstrap"),
            (State.COMPUTING, "prefill_forward"),
            (State.SENDING, "prefill_transfer_kv_cache"),
        )
        job.lasted[State.SENDING] = now - job.since
        self._shop.stages(job, names)
        self._shop.end(job, "length", now)

    def _first_token(self, job: Job, now: float) -> None:
        job.made += 1
        self._shop.out.append(Token(job.rid, job.made, now))

    def _lost(self, job: Job, why: str, now: float) -> None:
        """A transfer failed: the session is given up, every later one to it fails at once."""
        assert job.session is not None
        self.sessions.fail(job.session, now)
        self._shop.observe("num_transfer_failed_reqs_total", 1)
        self._fail(job, "transfer", f"Decode instance could be dead, {why}", now)

    def _fail(self, job: Job, what: str, why: str, now: float, *, tell: bool = True) -> None:
        if tell:
            self._tell(job, "failed", why)
        self._link.cancel(job.rid)
        self._shop.fail(job, transfer_error("Prefill", what, job, why), now)

    def _tell(self, job: Job, news: News, message: str = "") -> None:
        if job.session is not None and not job.fake:
            told = Deliver(job.rid, job.room, job.session, news, job.prompt_tokens, message)
            self._shop.out.append(told)
