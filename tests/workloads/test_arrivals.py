"""Arrivals are absolute, inside the window, and never rescaled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals import PACERS, constant, poisson


@pytest.mark.parametrize("name", PACERS)
@given(rate=st.floats(0.01, 200), duration_s=st.floats(0.01, 10), seed=st.integers(0, 2**32))
def test_times_rise_inside_the_window(name, rate, duration_s, seed):
    """Whatever is asked, no request is due before the start or at the end."""
    times = PACERS[name](rate, duration_s, np.random.default_rng(seed))

    assert list(times) == sorted(times)
    assert all(0 <= at < duration_s for at in times)


def test_constant_gaps_do_not_drift():
    """Request k is due at k / rate exactly, however many came before."""
    times = constant(1000.0, 100.0, np.random.default_rng(0))

    assert len(times) == 100_000
    assert times[99_999] == 99_999 / 1000.0


def test_poisson_keeps_its_variance():
    """Counts scatter as a Poisson process does (variance = mean); rescaling would take that away."""
    counts = [len(poisson(5.0, 20.0, np.random.default_rng(seed))) for seed in range(400)]

    assert np.mean(counts) == pytest.approx(100, abs=3)
    assert np.var(counts) == pytest.approx(100, rel=0.25)


def test_poisson_gaps_are_exponential():
    """Mean and standard deviation of the gaps are both 1 / rate."""
    gaps = np.diff(poisson(50.0, 400.0, np.random.default_rng(3)))

    assert gaps.mean() == pytest.approx(0.02, rel=0.05)
    assert gaps.std() == pytest.approx(0.02, rel=0.05)


def test_a_longer_window_begins_the_same():
    """A prefix stays a prefix."""
    short = poisson(3.0, 10.0, np.random.default_rng(1))
    long = poisson(3.0, 20.0, np.random.default_rng(1))

    assert long[: len(short)] == short
