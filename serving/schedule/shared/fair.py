"""How much of one pool each gateway should have: weighted max-min fair over what all of them ask for. Pure; in pages.

    classes   share the pool by their weights: none gets more than it asks for, and what one leaves goes to the others
    gateways  share each class's part evenly, in the same way
    floors    1 / FLOOR of the pool, split evenly, lies ready at every gateway for who comes next; and a gateway whose largest
              waiting request needs more than its part has that much, the one that has waited longest first
    spare     what nobody asks for, evenly

So a flood of one class through one gateway takes what others leave and no more, nothing lies idle but the floors, and no
request waits for ever because its gateway's part is too small for it.

Water-filling in the order of demand / weight: Bertsekas and Gallager, Data Networks, section 6.5.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

K = TypeVar("K", bound=str)

FLOOR = 16


@dataclass(frozen=True, slots=True)
class Demand:
    """What one gateway asks of one pool. by_class: pages held and waited for. largest: of one that waits, the most pages.
    waited_s: how long its longest has waited."""

    by_class: Mapping[str, int] = field(default_factory=dict)
    largest: int = 0
    waited_s: float = 0.0


def max_min(capacity: int, demands: Mapping[K, int], weights: Mapping[str, float]) -> dict[K, int]:
    """Weighted max-min fair parts of the capacity, at most the demand each; all of it where the demands reach."""
    left, given = capacity, dict[K, int]()
    order = sorted(demands, key=lambda key: (demands[key] / weights[key], key))
    shares = [*accumulate(weights[key] for key in reversed(order))]
    for key in order:
        share = weights[key] / shares.pop()
        given[key] = min(demands[key], int(left * share))
        left -= given[key]
    return given


def targets(pages: int, asked: Mapping[str, Demand], weights: Mapping[str, float]) -> dict[str, int]:
    """By gateway, its part; in all at most the pool. weights: by class, 1 where none is given."""
    even = dict.fromkeys(asked, 1.0)
    fair = dict.fromkeys(asked, 0)
    classes = {name: weights.get(name, 1.0) for one in asked.values() for name in one.by_class}
    sums = {name: sum(one.by_class.get(name, 0) for one in asked.values()) for name in classes}
    for name, part in max_min(pages, sums, classes).items():
        wanted = {gateway: one.by_class.get(name, 0) for gateway, one in asked.items()}
        for gateway, its in max_min(part, wanted, even).items():
            fair[gateway] += its
    floors = dict.fromkeys(asked, pages // (FLOOR * len(asked)))
    left = pages - sum(floors.values())
    for gateway in sorted(asked, key=lambda gateway: (-asked[gateway].waited_s, gateway)):
        more = min(max(0, asked[gateway].largest - floors[gateway]), left)
        floors[gateway] += more
        left -= more
    over = {gateway: max(0, fair[gateway] - floors[gateway]) for gateway in asked}
    given = max_min(left, over, even)
    spare = (left - sum(given.values())) // len(asked)
    return {gateway: floors[gateway] + given[gateway] + spare for gateway in asked}
