"""One plan on several workers: who sends what, and what a lost worker leaves."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from toolkit.core.plan import Plan
from workloads.record import LoadSample, unsent

LOST = "worker_lost"
LOST_MESSAGE = "its worker ended before it told what became of this request"


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
            yield unsent(request, window_s, LOST, LOST_MESSAGE)
