"""Retries are bounded whatever fails: per request, in sum, in time; and go elsewhere."""

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from serving.attempt import Pair
from serving.pairs import PairBook
from serving.retry_config import RetryConfig
from serving.schedule.retry import Cause, Refusal, Retries, RetryBudget
from serving.service import EngineEndpoint
from toolkit.core.errors import EngineUnavailable

RULE = RetryConfig()


def engine(name):
    return EngineEndpoint(name=name, role=name.split("-")[0], url="http://127.0.0.1:1")


def retries(**changes):
    return Retries(RetryConfig(**changes), random.Random(3))


def ask(made, cause=Cause.TRANSFER, attempts=1, now=0.0, deadline=3.0, other=True):
    return made.ask(cause, attempts, now=now, deadline=deadline, other=other)


def test_an_idle_service_may_retry_and_only_so_often():
    """The minimum lets a first request be tried again; two more than that in a window need requests behind them."""
    made = retries(budget_least=2)
    made.arrived(0.0)

    granted = [ask(made) for _ in range(3)]

    assert [isinstance(wait, float) for wait in granted] == [True, True, False]
    assert granted[2] is Refusal.NO_BUDGET
    assert isinstance(ask(made, now=31.0, deadline=40.0), float)


def test_a_share_of_the_requests_may_be_tried_again_while_they_are_recent():
    """100 requests at 10 % and a minimum of 3 are 13 retries, and 3 again once they are old."""
    budget = RetryBudget(0.1, 3, 30.0)
    for number in range(100):
        budget.arrived(number / 100)

    assert budget.left(1.0) == 13
    assert sum(budget.take(1.0) for _ in range(50)) == 13
    assert budget.left(29.0) == 0
    assert budget.left(31.0) == 3


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"attempts": 3}, Refusal.TOO_MANY),
        ({"now": 3.0}, Refusal.NO_TIME),
        ({"other": False}, Refusal.NO_PAIR),
        ({"other": False, "cause": Cause.UNREACHABLE}, Refusal.NO_PAIR),
        ({"other": False, "cause": Cause.BUSY}, Refusal.NO_PAIR),
    ],
)
def test_what_cannot_help_is_not_tried_and_costs_no_budget(asked, why):
    """Two retries at most, before the deadline, and on the same pair only where that may help."""
    made = retries(budget_least=1)

    assert ask(made, **asked) is why
    assert made.left(3.0) == 1


def test_a_failure_of_unknown_cause_may_be_tried_on_the_only_pair():
    """What failed once for no known reason may not fail twice."""
    assert isinstance(ask(retries(), cause=Cause.FAILED, other=False), float)


def test_waits_are_fully_jittered_and_double_up_to_the_cap():
    """Anywhere from 0 to the ceiling, so that those who failed together do not come back together."""
    made = retries(max_attempts=9, budget_least=10_000)
    ceilings = {1: 0.05, 2: 0.1, 3: 0.2, 4: 0.4, 5: 0.5, 6: 0.5}

    for attempts, ceiling in ceilings.items():
        waits = [ask(made, attempts=attempts) for _ in range(400)]
        assert 0.9 * ceiling < max(waits) <= ceiling
        assert min(waits) < 0.1 * ceiling


def test_half_of_the_time_left_stays_for_the_attempt():
    """A wait that uses up the budget would make the attempt for nothing."""
    assert max(ask(retries(budget_least=400), now=2.98) for _ in range(400)) <= 0.01 + 1e-9


def test_a_stalled_attempt_is_followed_at_once():
    """It has waited already."""
    assert ask(retries(), cause=Cause.STALLED) == 0.0


def test_the_section_refuses_what_does_not_fit():
    """A cap below the base would silently change both."""
    with pytest.raises(ValidationError, match=r"cap_s = 0\.01 is below base_s"):
        RetryConfig(cap_s=0.01)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=30),
    st.floats(0, 0.5),
    st.integers(0, 5),
)
def test_over_any_window_retries_stay_within_minimum_and_share(steps, share, least):
    """Any sequence of requests and wishes to retry; windows of ten slices, wherever they begin."""
    budget, now = RetryBudget(share, least, 10.0), 0.0
    seconds = Counter(), Counter()
    for pause, requests, wishes in steps:
        now += pause
        for _ in range(requests):
            budget.arrived(now)
        seconds[0][int(now)] += requests
        seconds[1][int(now)] += sum(budget.take(now) for _ in range(wishes))
    for begin in range(-10, int(now) + 1):
        again = sum(seconds[1][second] for second in range(begin, begin + 10))
        recent = sum(seconds[0][second] for second in range(begin - 9, begin + 10))
        assert again <= least + share * recent + 1e-6
    assert seconds[1].total() <= least * (now / 10 + 2) + share * seconds[0].total() + 1e-6


@dataclass
class Request:
    """One request of the run below."""

    number: int
    deadline: float
    tried: list[Pair] = field(default_factory=list)
    retried_at: list[float] = field(default_factory=list)


class Run:
    """The policy over a pair book in virtual time; what each attempt meets is drawn."""

    def __init__(self, seed, prefills, decodes, fault_share, causes=tuple(Cause)):
        self.source = random.Random(seed)
        self.fault_share = fault_share
        self.causes = causes
        self.book = PairBook(
            [engine(f"prefill-{n}") for n in range(prefills)], [engine(f"decode-{n}") for n in range(decodes)]
        )
        self.retries = Retries(RULE, random.Random(seed))
        self.events = []
        self.order = 0
        self.outcomes = Counter()
        self.attempts = 0
        self.again()

    def again(self):
        """What the prober does: engines are up, suspects pass, so pairs come back."""
        for name in self.book.engines:
            self.book.engine_seen(name, up=True)
        for pair in self.book.unproven():
            self.book.proven(pair)

    def at(self, when, action, *given):
        self.order += 1
        heapq.heappush(self.events, (when, self.order, action, given))

    def run(self, requests):
        now = 0.0
        for number in range(requests):
            now += self.source.expovariate(20.0)
            self.at(now, self.attempt, Request(number, now + self.source.choice((0.05, 0.8, 3.0))))
        for second in range(0, int(now) + 10, 2):
            self.at(float(second), lambda now: self.again())
        while self.events:
            now, _, action, given = heapq.heappop(self.events)
            action(now, *given)
        self.seconds = now
        self.book.check()
        return self

    def attempt(self, now, request):
        try:
            others = {s.pair for s in self.book.pairs.values() if self.book.in_rotation(s)}
            taken = self.book.take(now, avoid=request.tried)
        except EngineUnavailable:
            self.end(request, "unavailable")
            return
        pair = taken.pair
        assert pair not in request.tried or others <= set(request.tried), (
            "the same pair while there was another"
        )
        if request.tried:
            assert now < request.deadline
        else:
            self.retries.arrived(now)
        request.tried.append(pair)
        self.attempts += 1
        fault = self.source.choice(self.causes) if self.source.random() < self.fault_share else None
        self.at(now + self.source.expovariate(5.0), self.ended, request, taken, fault)

    def ended(self, now, request, taken, fault):
        pair = taken.pair
        self.book.give_back(taken)
        if fault is None:
            self.book.moved(pair)
            self.end(request, "completed" if now < request.deadline else "timed_out")
            return
        {
            Cause.UNREACHABLE: lambda: self.book.engine_seen(
                self.source.choice((pair.prefill, pair.decode)).name, up=False
            ),
            Cause.TRANSFER: lambda: self.book.transfer_failed(pair, now),
            Cause.FAILED: lambda: self.book.failed(pair),
            Cause.STALLED: lambda: self.book.silent(pair, self.book.moves(pair), False),
            Cause.BUSY: lambda: self.book.busy(pair, now),
        }[fault]()
        other = self.book.has_other(request.tried)
        granted = self.retries.ask(fault, len(request.tried), now=now, deadline=request.deadline, other=other)
        if isinstance(granted, Refusal):
            self.end(request, granted)
        else:
            assert now + granted < request.deadline
            self.at(now + granted, self.attempt, request)

    def end(self, request, outcome):
        assert len(request.tried) <= RULE.max_attempts
        self.outcomes[outcome] += 1


@pytest.mark.parametrize("fault_share", [0.05, 0.2, 1.0])
@pytest.mark.parametrize(("prefills", "decodes"), [(1, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("seed", [1, 2])
def test_any_faults_leave_attempts_bounded_and_one_outcome_each(seed, prefills, decodes, fault_share):
    """10 % and three per 30 s on top of the requests, two retries of one, none past a deadline, each pair given back."""
    run = Run(seed, prefills, decodes, fault_share).run(600)

    assert run.outcomes.total() == 600
    assert run.attempts <= 600 * (1 + RULE.budget_share) + RULE.budget_least * (
        run.seconds / RULE.window_s + 2
    )


def test_immediate_retries_without_a_budget_would_be_the_avalanche():
    """The same faults under the same arrivals, retried as long as attempts are left."""
    bounded = Run(4, 1, 2, 1.0, [Cause.FAILED]).run(600)
    naive = Run(4, 1, 2, 1.0, [Cause.FAILED])
    naive.retries = Retries(RetryConfig(budget_share=1, budget_least=10_000), random.Random(4))
    naive.run(600)

    assert bounded.attempts <= 1.15 * 600
    assert naive.attempts > 2 * bounded.attempts
