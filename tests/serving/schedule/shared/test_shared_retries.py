"""Gateways that share have one retry budget in all, however many they are."""

import random

import pytest

from serving.retry_config import RetryConfig
from serving.schedule.retry import Fleet, Retries


def with_requests(count: int) -> Retries:
    retries = Retries(RetryConfig(budget_share=0.1, budget_least=3), random.Random(1))
    for _ in range(count):
        retries.arrived(0.0)
    return retries


def test_a_gateway_may_use_what_others_requests_earned() -> None:
    """This one saw 20 requests, the other 180: 3 + 20 retries in all, of which the other made 5; half of what is left."""
    retries = with_requests(20)
    retries.share(Fleet(0, 2, requests=180, retries=5))

    assert retries.left(0.0) == 9


@pytest.mark.parametrize("gateways", [1, 2, 3, 7])
def test_the_parts_add_up_to_what_is_left(gateways: int) -> None:
    """To the last one, which alone would be lost in rounding."""
    parts = []
    for place in range(gateways):
        retries = with_requests(10)
        retries.share(Fleet(place, gateways, 10 * (gateways - 1), 2))
        parts.append(retries.left(0.0))

    assert sum(parts) == 3 + gateways - 2


def test_who_knows_nothing_of_the_others_has_its_own_and_its_part_of_the_least() -> None:
    parts = []
    for place in range(2):
        retries = with_requests(20)
        retries.share(Fleet(place, 2, 1000, 0, known=False))
        parts.append(retries.left(0.0))

    assert parts == [1 + 2, 2 + 2]


def test_what_is_published_is_what_was_counted() -> None:
    retries = with_requests(20)
    retries._budget.take(0.0)

    assert retries.recent(0.0) == (20, 1)
    assert retries.recent(60.0) == (0, 0)
