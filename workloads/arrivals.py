"""When requests are due: pure functions from a rate and a random stream to absolute times.

Times are seconds from the start, rising, all inside [0, duration). They are never rescaled to hit a count: a Poisson
process has a random count, and forcing it takes the bursts out that a server must survive. Every process here is
stationary: it has the asked rate from its first second on.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
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


def gamma(rate: float, duration_s: float, rng: "np.random.Generator", cv: float = 2.0) -> tuple[float, ...]:
    """Independent gamma gaps with mean 1 / rate and coefficient of variation `cv`: 1 is Poisson, above is burstier.

    What other tools call burstiness is 1 / cv². The first gap is the rest of one that began before the start (a
    length-biased gap is a gamma of one more shape, and the start lies anywhere in it); without that, a bursty process
    would have (cv² - 1) / 2 arrivals too many.
    """
    shape = 1 / cv**2
    scale = 1 / (rate * shape)
    times: list[float] = []
    at = float(rng.gamma(shape + 1, scale)) * float(rng.random())
    while at < duration_s:
        times.append(at)
        at += float(rng.gamma(shape, scale))
    return tuple(times)


def on_off(
    rate: float, duration_s: float, rng: "np.random.Generator", on_s: float = 5.0, off_s: float = 5.0
) -> tuple[float, ...]:
    """Poisson arrivals for `on_s`, silence for `off_s`, and again, beginning anywhere in the cycle.

    `rate` is the mean over whole cycles; in a burst it is rate * (on_s + off_s) / on_s.
    """
    cycle_s = on_s + off_s
    began = -float(rng.random()) * cycle_s
    times: list[float] = []
    while began < duration_s:
        times.extend(_stretch(rate * cycle_s / on_s, began, began + on_s, duration_s, rng))
        began += cycle_s
    return tuple(times)


def mmpp(
    rate: float,
    duration_s: float,
    rng: "np.random.Generator",
    states: Sequence[tuple[float, float]] = ((0.5, 20.0), (3.0, 5.0)),
) -> tuple[float, ...]:
    """A Markov-modulated Poisson process: in each state Poisson, the stays exponential.

    `states` are (factor, mean stay in seconds), visited in turn, starting as the stationary process would; in a state
    the rate is rate * factor. Factors whose mean over time is not 1 give another mean rate than `rate`.
    """
    stays = [mean_s for _, mean_s in states]
    mark = float(rng.random()) * sum(stays)
    state = next((i for i in range(len(stays)) if mark < sum(stays[: i + 1])), len(stays) - 1)
    times: list[float] = []
    at = 0.0
    while at < duration_s:
        factor, mean_s = states[state]
        until = at + float(rng.exponential(mean_s))
        times.extend(_stretch(rate * factor, at, until, duration_s, rng))
        at, state = until, (state + 1) % len(states)
    return tuple(times)


def replay(recorded_s: Iterable[float], speed: float, duration_s: float) -> tuple[float, ...]:
    """Recorded times at `speed` (2: twice as fast), from the first one's zero, cut off at the duration."""
    times: list[float] = []
    for at in recorded_s:
        if at / speed >= duration_s:
            break
        times.append(at / speed)
    return tuple(times)


def gap_cv(times: Sequence[float]) -> float:
    """Coefficient of variation of the gaps; NaN for fewer than three times."""
    gaps = [after - before for before, after in pairwise(times)]
    if len(gaps) < 2:
        return math.nan
    mean = sum(gaps) / len(gaps)
    return math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean if mean else math.nan


def dispersion(times: Sequence[float], duration_s: float, window_s: float) -> float:
    """Variance over mean of the counts per whole window: 1 for Poisson, 0 for constant; NaN under two windows."""
    windows = int(duration_s / window_s)
    if windows < 2:
        return math.nan
    counts = [0] * windows
    for at in times:
        if (window := int(at / window_s)) < windows:
            counts[window] += 1
    mean = sum(counts) / windows
    return sum((count - mean) ** 2 for count in counts) / windows / mean if mean else math.nan


def _stretch(
    rate: float, begin: float, end: float, duration_s: float, rng: "np.random.Generator"
) -> list[float]:
    # Poisson arrivals in [begin, end). Drawn to the end of the stretch even beyond the duration, so that a longer
    # window begins the same; only those inside the window are kept.
    times: list[float] = []
    if rate <= 0:
        return times
    at = begin + float(rng.exponential(1 / rate))
    while at < end:
        if 0 <= at < duration_s:
            times.append(at)
        at += float(rng.exponential(1 / rate))
    return times


PACERS: "Mapping[str, Pacer]" = MappingProxyType(
    {"constant": constant, "poisson": poisson, "gamma": gamma, "on_off": on_off, "mmpp": mmpp}
)
