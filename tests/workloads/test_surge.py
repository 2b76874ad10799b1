"""Verdicts on a surge."""

import numpy as np
import pytest

from toolkit.core.errors import UsageFault
from toolkit.core.sample import WorkloadClass
from workloads.profile import load_profile
from workloads.surge import Shot, judge
from workloads.surge_report import render, surge_profile, to_dict

TEXT, MANY = WorkloadClass.TEXT_ONLY, WorkloadClass.MULTI_IMAGE_LONG
BEGIN, END, RUN = 200.0, 300.0, 500.0


def run(good_in_surge=1.0, slow_until=0.0, unfair=False, base_rate=4.0, returned=(), ttft_s=0.2, seed=1):
    """A made-up run: 80 % of a peak, twice the peak, 80 % again. good_in_surge: share of requests that stay good."""
    rng = np.random.default_rng(seed)
    shots = []
    for begin, end, rate in ((0, BEGIN, base_rate), (BEGIN, END, base_rate * 2.5), (END, RUN, base_rate)):
        for at in np.sort(rng.uniform(begin, end, round((end - begin) * rate))):
            kind = TEXT if rng.random() < 0.6 else MANY
            in_surge = begin == BEGIN
            good = not in_surge or (kind is TEXT if unfair else rng.random() < good_in_surge)
            late = begin == END and at < END + slow_until
            good = good and not late
            ttft = float(ttft_s * rng.uniform(0.8, 1.2) * (10 if late else 1))
            shots.append(Shot(float(at), kind, good, good or late, ttft if good or late else None))
    return judge([*shots, *returned], BEGIN, END, RUN, np.random.default_rng(seed))


def test_a_surge_that_is_absorbed_passes():
    """Goodput rises with the offer, no class pays, the first window after it is well."""
    verdict = run()

    assert verdict.failures == ()
    assert verdict.kept.value == pytest.approx(2.5, rel=0.1)
    assert verdict.kept.low < verdict.kept.value < verdict.kept.high
    assert verdict.breached_after_s is None
    assert verdict.recovered_after_s is not None
    assert 20 <= verdict.recovered_after_s <= 40


def test_shedding_what_does_not_fit_passes_if_goodput_is_kept():
    """At twice the peak half the requests may be told to come back; the service still does its peak's work."""
    verdict = run(good_in_surge=0.5)

    assert verdict.failures == ()
    assert verdict.breached_after_s == 20.0


def test_a_collapse_is_told_with_its_interval():
    """The measured routers: goodput from 8.7/s to 0.2."""
    verdict = run(good_in_surge=0.02)

    assert "goodput fell to" in verdict.failures[0]
    assert verdict.kept.high < 0.2


def test_surviving_by_shedding_one_class_is_no_pass():
    """All goodput went to text: the images paid."""
    verdict = run(unfair=True)

    assert [failure for failure in verdict.failures if "multi_image_long paid" in failure]


def test_the_time_to_recover_is_measured_from_the_surges_end():
    """The first window of 20 s that is as good as the baseline."""
    verdict = run(slow_until=60.0)

    assert verdict.recovered_after_s is not None
    assert 75 <= verdict.recovered_after_s <= 100


def test_a_service_that_stays_slow_has_not_recovered():
    """Then nothing collapses in the surge, and the run still fails."""
    verdict = run(slow_until=1000.0)

    assert verdict.recovered_after_s is None
    assert "it did not recover before the run's end" in verdict.failures


def test_a_retry_after_that_sends_people_into_the_wall_is_told():
    """Half of those who came back in time were refused again."""
    returned = [Shot(BEGIN + n, TEXT, n % 2 == 0, n % 2 == 0, 0.2, returned=True) for n in range(40)]
    verdict = run(good_in_surge=0.5, returned=returned)

    assert verdict.honest_429 == 0.5
    assert "only 50% of those who came back" in verdict.failures[0]


def test_a_peak_set_too_high_is_the_first_thing_told():
    """If 80 % of it is already too much, the surge says nothing."""
    shots = [Shot(float(at), TEXT, at % 2 == 0, True, 5.0) for at in range(500)]
    verdict = judge(shots, BEGIN, END, RUN, np.random.default_rng(1))

    assert "the baseline itself kept only 50%" in verdict.failures[0]


def test_an_empty_stretch_is_refused():
    """A verdict on nothing would be a guess."""
    with pytest.raises(ValueError, match="surge has no request"):
        judge([Shot(1.0, TEXT, True, True, 0.1)], BEGIN, END, RUN, np.random.default_rng(1))


def test_a_surge_profile_takes_the_peak_and_the_time_scale():
    """80, 200 and 80 % of it, a tenth as long."""
    profile = surge_profile(load_profile("surge"), peak=10.0, time_scale=0.1)

    assert [(s.name, s.rate, s.end_s - s.begin_s) for s in profile.stretches()] == [
        ("baseline", 8.0, 60.0),
        ("surge", 20.0, 30.0),
        ("recovery", 8.0, 120.0),
    ]


def test_a_profile_without_the_phases_is_no_surge():
    """The message names what is missing."""
    with pytest.raises(UsageFault, match="baseline, surge, recovery"):
        surge_profile(load_profile("smoke"), 1.0, 1.0)


def test_a_verdict_says_in_words_what_its_json_holds():
    """People and machines read the same."""
    verdict = run(good_in_surge=0.02)
    text, document = render(verdict, 5.0), to_dict(verdict)

    assert "FAILED: goodput fell to" in text
    assert not document["passed"]
    assert document["surge"]["kept"]["high"] < 0.2
