"""The order handed to engines: who goes first inside them, and that nobody is passed for ever."""

import random
from dataclasses import dataclass

from serving.schedule.levels import TOP, Levels


@dataclass
class Inside:
    """One request in the engines' queue. Times: seconds."""

    key: str
    level: int
    entered: float
    due: float
    works_s: float


def test_a_higher_priority_is_a_higher_level_and_who_is_due_has_the_top():
    levels = Levels()

    standard = levels.enter("a", 1.0, due=9.0, now=0.0)
    long = levels.enter("b", 0.2, due=9.0, now=0.0)
    tiny = levels.enter("c", 1e-9, due=9.0, now=0.0)
    huge = levels.enter("d", 1e9, due=9.0, now=0.0)
    due = levels.enter("e", 0.2, due=0.0, now=0.0)

    assert 0 == tiny < long < standard < huge < due == TOP


def test_nobody_who_enters_later_passes_who_is_due():
    levels = Levels()
    long = levels.enter("long", 0.1, due=1.0, now=0.0)

    before, after = levels.enter("s1", 2.0, 9.0, now=0.5), levels.enter("s2", 2.0, 9.0, now=1.5)
    levels.leave("long")
    later = levels.enter("s3", 2.0, 9.0, now=1.6)

    assert before > long == after < later


def test_in_an_engine_that_goes_by_level_a_due_request_is_passed_only_by_those_inside():
    """Random arrivals for one prefill that always takes the highest level, the earliest in it: at any load, who is due and
    waits is passed by at most as many as were inside when it became due."""
    for seed in range(20):
        source, levels, now = random.Random(seed), Levels(), 0.0
        queue: list[Inside] = []
        free_at, number = 0.0, 0
        passed: dict[str, int] = {}
        arrivals = iter([source.expovariate(12.0) for _ in range(400)])
        next_at = next(arrivals)
        while True:
            if next_at is not None and (not queue or next_at <= free_at) and len(queue) < 16:
                now = max(now, next_at)
                short = source.random() < 0.9
                priority = source.uniform(1.0, 8.0) if short else source.uniform(0.02, 0.2)
                due = now + source.uniform(-0.2, 1.0)
                key = str(number)
                level = levels.enter(key, priority, due, now)
                queue.append(Inside(key, level, now, due, 0.08 if short else 0.4))
                number += 1
                gap = next(arrivals, None)
                next_at = None if gap is None else max(now, next_at) + gap
                continue
            if not queue:
                break
            now = max(now, free_at)
            chosen = max(queue, key=lambda one: (one.level, -one.entered))
            for other in queue:
                if other is not chosen and other.due <= chosen.entered and other.entered < chosen.entered:
                    passed[other.key] = passed.get(other.key, 0) + 1
            queue.remove(chosen)
            levels.leave(chosen.key)
            free_at = now + chosen.works_s
        assert not passed, f"seed {seed}: passed by somebody who entered after they were due: {passed}"


def test_short_requests_pass_long_ones_inside_the_engines():
    """Eight long ones and then a short one enter at once: with levels the short one is next, by arrival it is last."""
    levels = Levels()
    queue = [
        Inside(f"long {n}", levels.enter(f"long {n}", 0.2, 1.5, 0.0), 0.001 * n, 1.5, 0.4) for n in range(8)
    ]
    queue.append(Inside("short", levels.enter("short", 0.9, 0.5, 0.01), 0.01, 0.5, 0.05))

    order = sorted(queue, key=lambda one: (-one.level, one.entered))

    assert order[0].key == "short" and [one.key for one in order[1:]] == [f"long {n}" for n in range(8)]
