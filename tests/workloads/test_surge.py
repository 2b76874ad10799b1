"""Verdicts on a surge."""

import numpy as np
import pytest

from toolkit.core.errors import UsageFault
from toolkit.core.sample import WorkloadClass
from workloads.profile import load_profile
from workloads.surge import judge
from workloads.surge_figures import Shot
from workloads.surge_pages import Amplification, Pages, Peak
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


def test_times_never_lie_beyond_what_was_run():
    """A surge of 3 s, a recovery of 12 s: both shorter than the window that judges them."""
    shots = [
        Shot(number / 4, TEXT, not 24 <= number < 36, True, 5.0 if 24 <= number < 36 else 0.2)
        for number in range(84)
    ]
    verdict = judge(shots, 6.0, 9.0, 21.0, np.random.default_rng(1))

    assert verdict.breached_after_s == 3.0
    assert verdict.recovered_after_s == 12.0


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


def coming_back(admitted_share, count=40):
    refused = round(count * (1 - admitted_share))
    return [
        Shot(BEGIN + n, TEXT, n >= refused, n >= refused, 0.2, returned=True, admitted=n >= refused)
        for n in range(count)
    ]


def test_a_retry_after_that_sends_people_into_the_wall_is_told():
    """Half of those who came back in time were refused again."""
    verdict = run(good_in_surge=0.5, returned=coming_back(0.5))

    assert verdict.honest_429.value == 0.5
    assert verdict.honest_429.low <= 0.5 <= verdict.honest_429.high
    assert "only 50% of those who came back" in verdict.failures[0]


def test_a_retry_after_that_is_kept_is_honest():
    """Four of five are enough; what became of them afterwards is another matter."""
    verdict = run(good_in_surge=0.5, returned=coming_back(0.8))

    assert verdict.failures == ()
    assert verdict.returned == 40
    assert "40 after their Retry-After, 80%" in render(verdict, 5.0)


def test_who_comes_back_adds_nothing_to_the_offer():
    """Forty returns, all good, and every other figure is as if there were none."""
    without, with_them = run(good_in_surge=0.5), run(good_in_surge=0.5, returned=coming_back(1.0))

    assert with_them.kept == without.kept
    assert with_them.classes == without.classes
    assert with_them.recovered_after_s == without.recovered_after_s
    assert with_them.barren == without.barren


def test_a_time_in_which_nothing_was_good_is_said_plainly():
    """From 12 s into the surge to 31 s after it: 119 s for nobody."""
    shots = [Shot(float(at), TEXT, not 212 <= at < 331, not 212 <= at < 331, 0.2) for at in range(int(RUN))]
    verdict = judge(shots, BEGIN, END, RUN, np.random.default_rng(1))

    assert (verdict.barren.begin_s, verdict.barren.length_s, verdict.barren.requests) == (212.0, 119.0, 119)
    assert "no request was good for 119 s, from 12 s after the surge began" in verdict.failures
    assert to_dict(verdict)["longest_without_good"]["length_s"] == 119.0
    assert "at most 119 s without a good request (119 came)" in render(verdict, 5.0)


def test_a_barren_time_reaches_to_the_end_of_the_run():
    """Nothing good after the surge began: 300 s of it; and no class is said to have paid for another."""
    shots = [Shot(float(at), TEXT if at % 2 else MANY, at < 200, at < 200, 0.2) for at in range(int(RUN))]
    verdict = judge(shots, BEGIN, END, RUN, np.random.default_rng(1))

    assert "no request was good for 300 s, from 0 s after the surge began" in verdict.failures
    assert not [failure for failure in verdict.failures if "paid" in failure or "favoured" in failure]
    assert "nothing at all was good" in render(verdict, 5.0)


def test_a_few_bad_ones_in_a_row_are_no_barren_time():
    """Nine in 9 s, or three in a minute in which only those came."""
    dense = [Shot(float(at), TEXT, not 210 <= at < 219, True, 0.2) for at in range(int(RUN))]
    sparse = [Shot(float(at), TEXT, not 205 <= at < 260, True, 0.2) for at in range(0, int(RUN), 20)]

    for shots in (dense, sparse):
        verdict = judge(shots, BEGIN, END, RUN, np.random.default_rng(1))
        assert not verdict.barren.long
        assert not [failure for failure in verdict.failures if "no request was good" in failure]


def test_nineteen_fast_answers_and_one_failure_are_a_p95():
    """Recovery looks at the 95th of a hundred: a single failure in a window does not hide that the rest is well."""
    one_bad = [
        Shot(float(at), TEXT, at % 20 != 0 or at < 300, at % 20 != 0 or at < 300, 0.2) for at in range(500)
    ]
    four_bad = [
        Shot(float(at), TEXT, at % 5 != 0 or at < 300, at % 5 != 0 or at < 300, 0.2) for at in range(500)
    ]

    assert judge(one_bad, BEGIN, END, RUN, np.random.default_rng(1)).recovered_after_s == 20.0
    assert judge(four_bad, BEGIN, END, RUN, np.random.default_rng(1)).recovered_after_s is None


def test_what_the_pages_say_stands_in_the_verdict():
    """Queue and attempts, or why there are none; nothing is passed or failed by them."""
    measured = Pages(
        Peak(131, 215.0, (("decode-0", 120), ("target", 11))),
        Amplification(1.0, 3.4, "requests that reached the engines"),
        {},
    )
    shots = [Shot(float(at), TEXT, True, True, 0.2) for at in range(500)]
    rng = np.random.default_rng
    with_pages = judge(shots, BEGIN, END, RUN, rng(1), measured)
    without = judge(shots, BEGIN, END, RUN, rng(1))

    text, document = render(with_pages, 5.0), to_dict(with_pages)
    assert "131 waiting at most, at 215 s (decode-0 120, target 11)" in text
    assert (
        "3.40 per request offered from the surge on, 1.00 before (requests that reached the engines)" in text
    )
    assert document["largest_queue"] == {
        "count": 131,
        "at_s": 215.0,
        "where": {"decode-0": 120, "target": 11},
    }
    assert document["retry_amplification"]["surge"] == 3.4
    assert render(without, 5.0).count("not measurable: no page of /metrics was kept") == 2
    assert to_dict(without)["retry_amplification"] is None
    assert set(to_dict(without)["not_measurable"]) == {"queue", "amplification"}
    assert with_pages.failures == without.failures == ()


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


def test_a_steady_profile_is_given_the_phases():
    """Whatever had its peak measured can be doubled, with the clients that come back."""
    usual = surge_profile(load_profile("surge"), 6.0, 0.1)
    profile = surge_profile(load_profile("text-only"), 6.0, 0.1)

    assert profile.stretches() == usual.stretches()
    assert profile.duration_s == usual.duration_s
    assert profile.returning == usual.returning
    assert profile.classes == load_profile("text-only").classes


def test_other_phases_are_no_surge():
    """The message names what is missing."""
    surge = load_profile("surge")
    with pytest.raises(UsageFault, match="baseline, surge, recovery"):
        surge_profile(surge.model_copy(update={"phases": surge.phases[:2]}), 1.0, 1.0)
    with pytest.raises(UsageFault, match="no rate steers"):
        surge_profile(load_profile("smoke").model_copy(update={"arrival": "closed"}), 1.0, 1.0)
    with pytest.raises(UsageFault, match="no rate steers"):
        surge_profile(load_profile("smoke").model_copy(update={"plan": "plan.json"}), 1.0, 1.0)


def test_a_verdict_says_in_words_what_its_json_holds():
    """People and machines read the same."""
    verdict = run(good_in_surge=0.02)
    text, document = render(verdict, 5.0), to_dict(verdict)

    assert "FAILED: goodput fell to" in text
    assert not document["passed"]
    assert document["surge"]["kept"]["high"] < 0.2
