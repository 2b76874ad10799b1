"""By when a hop must end, from the least that those after it took."""

import random

from serving.schedule.floors import SURE, Floors
from serving.schedule.learned import HALF_LIFE_S


def test_nothing_is_lacking_while_nothing_was_seen():
    assert Floors().after_s("body", None, 5.0) == 0.0


def test_later_hops_add_up_and_earlier_ones_do_not_count():
    floors = Floors()
    for hop, took in (("fetch", 0.1), ("prepare", 0.2), ("engines", 0.4)):
        floors.took(hop, True, took, 0.0)

    assert abs(floors.after_s("body", True, 0.0) - SURE * 0.7) < 1e-9
    assert abs(floors.after_s("prepare", True, 0.0) - SURE * 0.4) < 1e-9
    assert floors.after_s("engines", True, 0.0) == 0.0


def test_before_its_kind_is_known_a_request_is_taken_for_the_quicker_kind():
    floors = Floors()
    floors.took("engines", True, 2.0, 0.0)
    floors.took("engines", False, 0.1, 0.0)

    assert floors.after_s("body", None, 0.0) == SURE * 0.1


def test_what_could_still_be_served_is_never_refused():
    """Durations of any spread: the floor stays under the least that comes, so nobody is refused who had a chance."""
    source, floors, now = random.Random(7), Floors(), 0.0
    for _ in range(2000):
        now += source.expovariate(5.0)
        took = 0.2 + source.lognormvariate(-2.0, 1.0)
        assert floors.after_s("wait", False, now) <= 0.21
        floors.took("engines", False, took, now)


def test_a_floor_that_nobody_renews_loses_its_say():
    floors = Floors()
    floors.took("engines", False, 1.0, 0.0)

    assert floors.after_s("wait", False, 12 * HALF_LIFE_S) < 0.01
