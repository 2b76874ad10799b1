"""Arrivals are absolute, inside the window, and never rescaled."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.arrivals import PACERS, constant, dispersion, gamma, gap_cv, mmpp, on_off, poisson, replay

BURSTY = {
    "gamma 0.5": partial(gamma, cv=0.5),
    "gamma 3": partial(gamma, cv=3.0),
    "on_off": partial(on_off, on_s=1.0, off_s=3.0),
    "mmpp": partial(mmpp, states=((0.25, 3.0), (3.25, 1.0))),
}


@pytest.mark.parametrize("name", PACERS)
@settings(max_examples=40)
@given(rate=st.floats(0.01, 100), duration_s=st.floats(0.01, 10), seed=st.integers(0, 2**32))
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


@pytest.mark.parametrize("name", BURSTY)
def test_every_process_has_the_rate_asked(name):
    """On average over many short windows as well: none begins with a burst or a silence more often than it should."""
    counts = [len(BURSTY[name](5.0, 4.0, np.random.default_rng(seed))) for seed in range(1500)]

    assert np.mean(counts) == pytest.approx(20, abs=4 * np.std(counts) / math.sqrt(1500))


@pytest.mark.parametrize("cv", [0.25, 1.0, 2.5])
def test_gamma_gaps_vary_as_asked(cv):
    """The coefficient of variation of the gaps is the one in the profile."""
    times = gamma(20.0, 1000.0, np.random.default_rng(1), cv=cv)

    assert gap_cv(times) == pytest.approx(cv, rel=0.08)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("gamma 0.5", 0.1, 0.5), ("gamma 3", 5, 13), ("on_off", 3, 40), ("mmpp", 2, 40)],
)
def test_counts_keep_their_variance(name, least, most):
    """Bursts show in the counts of windows: variance over mean far from a Poisson process's 1."""
    times = BURSTY[name](10.0, 2000.0, np.random.default_rng(7))

    assert least < dispersion(times, 2000.0, 10.0 if "gamma" in name else 1.0) < most


def test_on_off_is_silent_between_bursts():
    """Every arrival lies in the same quarter of the cycle."""
    times = np.array(on_off(8.0, 400.0, np.random.default_rng(5), on_s=1.0, off_s=3.0))
    cycle = np.sort(times % 4.0)
    longest_silence = np.diff(np.concatenate([cycle, cycle[:1] + 4.0])).max()

    assert longest_silence >= 2.9


@pytest.mark.parametrize("name", [*PACERS, *BURSTY])
def test_a_longer_window_begins_the_same(name):
    """A prefix stays a prefix."""
    pace = {**PACERS, **BURSTY}[name]
    short = pace(3.0, 10.0, np.random.default_rng(1))
    long = pace(3.0, 25.0, np.random.default_rng(1))

    assert long[: len(short)] == short
    assert all(at >= 10.0 for at in long[len(short) :])


def test_replay_keeps_every_gap():
    """Twice as fast halves the times and changes no count; what is due after the end is left out."""
    assert replay([0.0, 1.0, 1.5, 9.0], 2.0, 10.0) == (0.0, 0.5, 0.75, 4.5)
    assert replay([0.0, 1.0, 1.5, 9.0], 1.0, 9.0) == (0.0, 1.0, 1.5)


@pytest.mark.parametrize(
    ("times", "cv"),
    [((), math.nan), ((1.0, 2.0), math.nan), ((0.0, 1.0, 2.0), 0.0), ((1.0, 1.0, 1.0), math.nan)],
)
def test_few_times_have_no_variation(times, cv):
    """Too few gaps, or none with a length, have no coefficient of variation."""
    assert gap_cv(times) == pytest.approx(cv, nan_ok=True)
    assert math.isnan(dispersion(times, 1.5, 1.0))
