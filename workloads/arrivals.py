"""When requests are due: pure functions from a rate and a random stream to absolute times.

Times are seconds from the start, rising, all inside [0, duration). They are never rescaled to hit a count: a Poisson
process has a random count, and forcing it takes the bursts out that a server must survive.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Pacer = Callable[[float, float, np.random.Generator], tuple[float, ...]]


def constant(rate: float, duration_s: float, rng: "np.random.Generator") -> tuple[float, ...]:  # noqa: ARG001 - one shape for all pacers
    """Equal gaps of 1 / rate, the first due at 0. Each time is k / rate, so no rounding error adds up."""
    times: list[float] = []
    while (at := len(times) / rate) < duration_s:
        times.append(at)
    return tuple(times)


def poisson(rate: float, duration_s: float, rng: "np.random.Generator") -> tuple[float, ...]:
    """Independent exponential gaps with mean 1 / rate: a Poisson process cut off at the duration."""
    times: list[float] = []
    at = float(rng.exponential(1 / rate))
    while at < duration_s:
        times.append(at)
        at += float(rng.exponential(1 / rate))
    return tuple(times)


PACERS: "Mapping[str, Pacer]" = MappingProxyType({"constant": constant, "poisson": poisson})
