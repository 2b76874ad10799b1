"""Who waits is judged again as slots turn: a refusal comes as soon as it is certain, not at the deadline."""

import random

import pytest

from tests.serving.schedule.virtual import Ask, rules, run


def burst(count, budget_s=3.0, hold_s=0.5):
    return [Ask(0.0, hold_s=hold_s, first_s=0.1, budget_s=budget_s) for _ in range(count)]


def test_of_a_burst_those_that_cannot_be_served_know_with_the_first_slot_that_turns():
    """Nothing is known when they come, so all are let in. Two slots of half a second serve twelve within three."""
    fates = run(rules(max_in_flight=2), burst(30))
    refused = [fate for fate in fates if fate.refused is not None]
    assert {fate.refused.code.code for fate in refused} == {"queue_too_long"}
    assert {fate.refused_at for fate in refused} == {0.5}
    served = [fate for fate in fates if fate.good]
    assert 10 <= len(served) <= 12
    assert not any(fate.timed_out for fate in fates)


@pytest.mark.parametrize("seed", range(4))
def test_as_many_are_served_as_could_be(seed):
    """With slots held for between nothing and twice the mean, estimates are wrong at times; few are refused in vain."""
    source = random.Random(seed)
    asks = [
        Ask(0.05 * number, hold_s=source.uniform(0.0, 1.0), first_s=0.0, budget_s=3.0)
        for number in range(200)
    ]
    fates = run(rules(max_in_flight=4), asks)
    good = sum(fate.good for fate in fates)
    possible = 4 * (asks[-1].at + 3.0) / 0.5
    assert good >= 0.8 * possible
    assert sum(fate.timed_out for fate in fates) <= 0.025 * len(fates)


def test_nobody_is_refused_for_what_one_slow_answer_said():
    """It leaves the engines empty: only a request can tell whether they still are slow."""
    asks = [
        Ask(0.0, hold_s=20.0, first_s=0.1, budget_s=60.0),
        *(Ask(19.9, hold_s=0.1, budget_s=3.0) for _ in range(5)),
    ]
    fates = run(rules(max_in_flight=1), asks)
    assert fates[1].good or fates[1].refused is not None
    again = run(rules(max_in_flight=1), [asks[0], Ask(20.5, hold_s=0.1, budget_s=3.0)])
    assert again[1].good
