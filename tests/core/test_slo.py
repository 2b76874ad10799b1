"""Service-level maths against independent sources: numpy's percentiles, MLPerf's table, brute-force binomials."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.core.sample import SloClass
from toolkit.core.slo import (
    DEFAULT_SLOS,
    Slo,
    attainment,
    gaps,
    goodput,
    overruns_allowed,
    percentile,
    quantile,
    samples_needed,
    tpot,
    ttft,
)

FLOATS = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(FLOATS, min_size=1, max_size=50), st.floats(0, 1))
def test_percentiles_are_numpys_linear_ones(values, p):
    """The same numbers as the tools that people compare with."""
    assert percentile(values, p) == pytest.approx(float(np.percentile(values, p * 100)), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(("p", "needed"), [(0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6636)])
def test_samples_needed_are_mlperfs(p, needed):
    """The published minima of MLPerf's early stopping follow from its rule."""
    assert samples_needed(p) == needed


@pytest.mark.parametrize("p", [0.5, 0.9, 0.95, 0.99])
def test_a_percentile_turns_firm_exactly_at_its_minimum(p):
    """One sample fewer is a bound, not a value."""
    needed = samples_needed(p)

    assert not quantile(range(needed - 1), p).firm
    assert quantile(range(needed), p).firm


@pytest.mark.parametrize("samples", [1, 10, 64, 65, 200, 700])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_the_rule_agrees_with_a_plain_sum(samples, p):
    """The largest t with P(Binomial(n, 1 - p) <= t) <= 1 %, summed term by term."""
    terms = [math.comb(samples, k) * (1 - p) ** k * p ** (samples - k) for k in range(samples + 1)]
    fits = [t for t in range(1, samples + 1) if math.fsum(terms[: t + 1]) <= 0.01]

    assert overruns_allowed(samples, p) == max(fits, default=0)


@pytest.mark.parametrize(("p", "n"), [(0.5, 40), (0.95, 150), (0.95, 60)])
def test_bounds_hold_as_often_as_they_say(p, n):
    """Over many draws of a known distribution each bound is wrong in at most about 1 % of them."""
    rng = np.random.default_rng(1)
    true = -math.log(1 - p)
    draws = [quantile(rng.exponential(size=n).tolist(), p) for _ in range(800)]

    assert np.mean([q.lower > true for q in draws]) <= 0.015
    assert np.mean([q.upper is not None and q.upper < true for q in draws]) <= 0.015


def test_too_few_samples_have_no_bound_at_all():
    """One sample says nothing about a p95, and nothing at all is no quantile."""
    assert quantile([1.0], 0.95).lower is None
    assert quantile([], 0.95) is None
    with pytest.raises(ValueError, match="no value"):
        percentile([], 0.5)


def test_ttft_needs_both_ends():
    """No send or no token: no TTFT."""
    assert ttft(1.0, 1.25) == 0.25
    assert ttft(None, 1.0) is ttft(1.0, None) is None


def test_gaps_and_time_per_token():
    """A chunk is one gap; time per output token leaves the first token out."""
    assert gaps((1.0, 1.5, 1.75)) == (0.5, 0.25)
    assert gaps(()) == gaps((1.0,)) == ()
    assert tpot(1.0, 2.0, 5) == 0.25
    assert tpot(1.0, 1.0, 1) is None


@pytest.mark.parametrize(
    ("ttft_s", "itl_s", "met"),
    [
        (3.0, (), True),
        (3.001, (), False),
        (None, (), False),
        (1.0, (0.1,) * 20, True),
        (1.0, (0.2,) * 20, False),
        (1.0, (0.01,) * 99 + (9.0,), True),
    ],
)
def test_a_promise_is_kept_by_ttft_and_own_p95_gap(ttft_s, itl_s, met):
    """Both limits count; one long gap in a hundred does not break a P95."""
    assert DEFAULT_SLOS[SloClass.STANDARD].met(ttft_s, itl_s) is met


def test_batch_promises_nothing():
    """Offline work that completed is good whenever it came."""
    assert Slo().met(None, ()) is True
    assert Slo().met(1e6, (1e6,)) is True


def test_attainment_and_goodput_divide_by_what_was_offered():
    """Nothing offered is no attainment; a window has a length."""
    assert attainment(3, 4) == 0.75
    assert attainment(0, 0) is None
    assert goodput(30, 60.0) == 0.5
    with pytest.raises(ValueError, match="window"):
        goodput(1, 0.0)
