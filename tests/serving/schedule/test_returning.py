"""Retry-After: who comes back when told to is served more often than by chance, and never told nonsense."""

import pytest

from tests.serving.schedule.returning import LOADS, arrivals, returning

FLOORS = dict(zip(LOADS, (0.70, 0.52, 0.62), strict=True))
"""Of those told 429 who come back once, when told: the share that is served in time then (benchmarks/results/schedule-retry-after.md
has the figures, and those of a constant)."""


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_so_many_are_served_when_they_come_back_as_told(load):
    """Over several arrivals together; in whole seconds from one to thirty."""
    played = [returning(arrivals(seed, LOADS[load])) for seed in range(2)]
    back = [fate for one in played for fate in one.seconds]
    told = {second for one in played for second in one.told_s}

    assert len(back) >= 60
    assert sum(fate.good for fate in back) / len(back) >= FLOORS[load]
    assert all(second == int(second) and 1 <= second <= 30 for second in told)
