"""One plan on several workers: who sends what, and what a lost worker leaves."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from toolkit.core.plan import Plan, PlannedRequest
from workloads.record import LoadOutcome, LoadSample

LOST = "worker_lost"


@dataclass(frozen=True, slots=True)
class Share:
    """Worker `index` of `of`: the requests whose place in the plan leaves that remainder."""

    index: int = 0
    of: int = 1

    def has(self, request: int) -> bool:
        """Whether the request of that index is this worker's."""
        return request % self.of == self.index

    def concurrency(self, total: int) -> int:
        """Its part of a closed loop's open requests; 0 in an open loop."""
        return total // self.of + (self.index < total % self.of)


def shares(plan: Plan, workers: int) -> tuple[Share, ...]:
    """One for each worker that has something to do: never more than requests, or than a closed loop keeps open."""
    of = min(workers, len(plan.requests), plan.concurrency or workers)
    return tuple(Share(index, of) for index in range(of))


def lost(plan: Plan, share: Share, recorded: Container[int], window_s: float) -> Iterator[LoadSample]:
    """A record for each request of the share that was due in the window and of which nobody told: it missed its promise."""
    if plan.concurrency:
        return  # a closed loop promises no request
    for request in plan.requests:
        if share.has(request.index) and request.at_s < window_s and request.index not in recorded:
            yield _lost(request, window_s)


def _lost(request: PlannedRequest, window_s: float) -> LoadSample:
    return LoadSample(
        index=request.index,
        workload_class=request.workload_class,
        slo_class=request.slo_class,
        intended_s=request.at_s,
        outcome=LoadOutcome.UNSENT,
        ended_s=window_s,
        code=LOST,
        message="its worker ended before it told what became of this request",
    )
