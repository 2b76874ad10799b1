"""Which class each request belongs to: a weighted draw."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolkit.core.sample import WorkloadClass

if TYPE_CHECKING:
    import numpy as np


def draw_classes(
    weights: Mapping[WorkloadClass, float], count: int, rng: "np.random.Generator"
) -> tuple[WorkloadClass, ...]:
    """`count` independent draws by weight.

    One uniform number per request, looked up in the cumulated weights: the first draws stay the same when more are
    asked for. Raises ValueError when no weight is above 0.
    """
    total = sum(weights.values())
    if total <= 0:
        raise ValueError("a mix needs a weight above 0")
    return tuple(_at(weights, float(mark) * total) for mark in rng.random(count))


def _at(weights: Mapping[WorkloadClass, float], mark: float) -> WorkloadClass:
    present = [(name, weight) for name, weight in weights.items() if weight > 0]
    below = 0.0
    for name, weight in present:
        below += weight
        if mark < below:
            return name
    return present[-1][0]  # rounding can leave the mark at the very end of the last share
