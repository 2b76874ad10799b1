"""A profile's phases as a LoadTestShape: what makes locust's chart show 80, 200 and 80 %. Imports locust (gevent).

A user is one request per second of intended rate (curve.py), not someone who waits for an answer.
"""

from collections.abc import Callable, Sequence

from locust import LoadTestShape

from workloads.locust.curve import users_at
from workloads.shape import Stretch


class PlanShape(LoadTestShape):
    """The users of some stretches, as time passes. locust asks about once a second."""

    abstract = True  # locust must not take it for a locustfile's own

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        super().__init__()
        self._stretches = tuple(stretches)
        self._elapsed_s: Callable[[], float] = self.get_run_time
        self._busy: Callable[[], bool] = lambda: False

    def follow(self, elapsed_s: Callable[[], float], busy: Callable[[], bool]) -> None:
        """Go by a run's own time instead of locust's, which begins before the requests are prepared.

        elapsed_s: below 0 before the run. busy: asked after the last stretch; while it says so, answers are awaited,
        without users.
        """
        self._elapsed_s, self._busy = elapsed_s, busy

    def tick(self) -> tuple[int, float] | None:
        """(users, users per second to get there); None ends the run. A step is taken at once."""
        users = users_at(self._stretches, self._elapsed_s())
        if users is None:
            return (0, self._step(0)) if self._busy() else None
        return users, self._step(users)

    def _step(self, users: int) -> float:
        last = getattr(self.runner, "shape_last_tick", None) or (0, 0.0)
        if last[0] == users:
            return float(last[1] or 1.0)  # the same tick again: locust starts nothing
        return float(max(1, abs(users - last[0])))
