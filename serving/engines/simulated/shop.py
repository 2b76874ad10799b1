"""What the two kinds of work share: the requests, the KV pool, the formulas, the faults, and the way out."""

import random
from collections.abc import Iterable

from serving.engines.simulated.effects import Effect, Ended, Failed, Limits, Observation
from serving.engines.simulated.faults import Faults
from serving.engines.simulated.model import Costs
from serving.engines.simulated.pool import PagePool
from serving.engines.simulated.state import Event, Job, State

ABORTED = "Aborted by AbortReq."


class Shop:
    """One engine's requests and resources. Requests are kept in order of arrival."""

    def __init__(self, costs: Costs, limits: Limits) -> None:
        self.costs = costs
        self.limits = limits
        self.faults = Faults()
        self.source = random.Random(0)
        self.pool = PagePool(limits.max_total_tokens, limits.page_size)
        self.jobs: dict[str, Job] = {}
        self.out: list[Effect] = []
        self.seen: list[Observation] = []

    def within(self, *states: State) -> list[Job]:
        """Requests in any of the states, oldest first."""
        return [job for job in self.jobs.values() if job.state in states]

    def count(self, *states: State) -> int:
        return sum(job.state in states for job in self.jobs.values())

    def compute_s(self, seconds: float) -> float:
        return seconds * self.faults.slow_factor

    def observe(self, metric: str, value: float, stage: str = "") -> None:
        self.seen.append(Observation(metric, value, stage))

    def end(self, job: Job, reason: str, now: float) -> None:
        """The request has its answer, whole or cut."""
        self._leave(job, now)
        self.out.append(Ended(job.rid, reason, job.made))

    def fail(self, job: Job, message: str, now: float, status: int = 500) -> None:
        self._leave(job, now)
        self.out.append(Failed(job.rid, status, message))

    def stages(self, job: Job, names: Iterable[tuple[State, str]]) -> None:
        """Observe how long the request was in each of the states, under SGLang's stage names."""
        for state, name in names:
            self.observe("per_stage_req_latency_seconds", job.lasted.get(state, 0.0), name)

    def _leave(self, job: Job, now: float) -> None:
        job.on(Event.ENDED, now)
        self.pool.release(job.rid, self.faults.kv_leak_pages_per_request)
        del self.jobs[job.rid]


def transfer_error(role: str, what: str, job: Job, why: str) -> str:
    """SGLang's words for a failed bootstrap or transfer (prefill.py:1282, decode.py:2861, conn.py:103)."""
    owner = "decode_req.req" if role == "Decode" else "req"
    return (
        f"{role} {what} failed for request rank=0 {owner}.rid={job.rid!r} {owner}.bootstrap_room={job.room} "
        f"with exception KVTransferError(bootstrap_room={job.room}): {why}"
    )
