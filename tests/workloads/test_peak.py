"""The search for the peak, on servers whose capacity is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.peak import Found, Search, Tried, Verdict, next_step
from workloads.sequential import Decision, decide, independent, merged, next_look

from .queues import many_servers, one_server, rate_at

HELD, FAILED, UNDECIDED, LATE = Verdict.HELD, Verdict.FAILED, Verdict.UNDECIDED, Verdict.SATURATED


def hunt(search, verdict_of):
    tried = []
    while not isinstance(step := next_step(search, tried), Found):
        tried.append(Tried(step, verdict_of(step)))
    return step, tried


@given(
    capacity=st.floats(0.001, 10_000),
    start=st.floats(0.1, 100),
    low=st.floats(0.05, 10),
    span=st.floats(1, 1000),
    probes=st.integers(1, 12),
    undecided=st.booleans(),
)
def test_a_search_stays_inside_its_limits(capacity, start, low, span, probes, undecided):
    """Never below low, above high, or past its probes; the peak was held, what is above it was not."""
    search = Search(start, low, low * span, probes)

    found, tried = hunt(
        search, lambda rate: HELD if rate <= capacity else (UNDECIDED if undecided else FAILED)
    )

    assert len(tried) <= probes
    assert all(search.low <= one.rate <= search.high for one in tried)
    assert len({one.rate for one in tried}) == len(tried)
    assert found.peak is None or found.peak <= capacity
    assert found.not_held is None or found.not_held > capacity


@pytest.mark.parametrize("capacity", [0.3, 1.0, 3.9, 4.0, 33.0, 100.0, 900.0])
def test_a_clear_capacity_is_found_within_a_tenth_in_ten_probes(capacity):
    """From 4/s, up or down, over three orders of magnitude."""
    found, tried = hunt(Search(4.0, 0.04, 4000.0), lambda rate: HELD if rate <= capacity else FAILED)

    assert len(tried) <= 10
    assert found.peak == pytest.approx(capacity, rel=0.1)


def test_a_late_generator_is_tried_again_and_then_ends_the_search():
    """Its probes count for nobody: the peak is what was held before."""
    search = Search(4.0, 1.0, 100.0)
    tried = [Tried(4.0, HELD), Tried(8.0, LATE)]

    assert next_step(search, tried) == 8.0
    assert next_step(search, [*tried, Tried(8.0, HELD)]) == 16.0
    found = next_step(search, [*tried, Tried(8.0, LATE)])
    assert isinstance(found, Found)
    assert (found.peak, found.not_held) == (4.0, None)
    assert "generator is too slow for 8/s" in found.reason


def test_the_ends_of_the_scale_end_the_search():
    """Held at the top, or not even at the bottom."""
    top = hunt(Search(4.0, 1.0, 10.0), lambda rate: HELD)[0]
    bottom = hunt(Search(4.0, 1.0, 10.0), lambda rate: FAILED)[0]

    assert (top.peak, top.not_held) == (10.0, None)
    assert (bottom.peak, bottom.not_held) == (None, 1.0)
    assert "highest" in top.reason and "lowest" in bottom.reason


def verdict_on(at, waits, limit_s, rate):
    """A probe of that queue, as workloads/peak_watch.py looks at it."""
    waits = waits[at >= 10 * limit_s]
    size = max(2, math.ceil(rate * limit_s / 2))
    shares, delays = merged((waits <= 1).astype(float), size), merged(np.minimum(waits, 1.5), size)
    look = next_look(0)
    while look <= len(shares):
        decision = decide(independent(shares[:look], delays[:look])[0], 0.95, 0.05, 0.05)
        if decision is not Decision.OPEN:
            return HELD if decision is Decision.OVER else FAILED
        look = next_look(look)
    return UNDECIDED


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, pytest.param(4, marks=pytest.mark.proof)])
def test_the_peak_of_a_queue_is_found_within_a_tenth(servers):
    """M/M/1 of 20/s and M/M/4 of 20/s, 3 s allowed, probes of 600 limits: in at least 90 % of 200 seeds."""
    true, near, seeds = rate_at(0.95, 20, 3.0, servers), 0, 200
    for seed in range(seeds):
        rng = np.random.default_rng(seed)

        def probe(rate, rng=rng):
            args = (3.0, 610 * 3.0)
            queue = (
                one_server(rng, rate, 20, *args)
                if servers == 1
                else many_servers(rng, rate, 20, servers, *args)
            )
            return verdict_on(*queue, 3.0, rate)

        found, tried = hunt(Search(4.0, 0.04, 4000.0), probe)
        assert len(tried) <= 10
        near += found.peak is not None and abs(found.peak / true - 1) <= 0.1

    assert near >= 0.9 * seeds
