"""Which arrivals carry a conversation on: pure, and without moving any of them."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.core.sample import WorkloadClass
from workloads.shape import Sessions

if TYPE_CHECKING:
    import numpy as np

Turn = tuple[str, int]
ALONE: Turn = ("", 0)


def assign_turns(
    times: Sequence[float],
    classes: Sequence[WorkloadClass],
    sessions: Sessions,
    rng: "np.random.Generator",
) -> tuple[Turn, ...]:
    """(conversation, turn) of each arrival; ("", 0) for one that stands alone.

    An arrival takes the next turn of the conversation of its class that has waited longest, if one has waited at least
    `gap_s`; else it begins a new one. A planned turn whose arrival never comes is not asked.
    """
    waiting: dict[WorkloadClass, deque[tuple[float, str, int, int]]] = {}
    found: list[Turn] = []
    begun = 0
    for at, name in zip(times, classes, strict=True):
        belongs, turns = float(rng.random()) < sessions.share, max(1, sessions.turns.draw(rng))
        if not belongs:
            found.append(ALONE)
            continue
        queue = waiting.setdefault(name, deque())
        if queue and at - queue[0][0] >= sessions.gap_s:
            _, conversation, turn, turns = queue.popleft()
        else:
            conversation, turn, begun = f"c{begun}", 0, begun + 1
        found.append((conversation, turn))
        if turn + 1 < turns:
            queue.append((at, conversation, turn + 1, turns))
    return tuple(found)
