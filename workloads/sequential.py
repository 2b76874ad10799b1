"""Whether a share is at or over an objective, judged while the observations come in, with a bounded chance of error. Pure.

Testing by betting (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024).
For observations X_1, X_2, ... in [0, 1] whose mean given the past is at most m, the capital of a gambler who bets that
it is more,

    K_t(f) = prod_{i<=t} (1 + f * (X_i - m) / m),      0 <= f <= 1,

is a nonnegative supermartingale from 1, and so is any average over f. By Ville's inequality it ever reaches 1 / a with
probability a at most. So one may look again and again and stop at the first look that decides. The bet that the mean
is less is the mirror image, prod (1 + f * (m - X_i) / (1 - m)). Nothing is assumed of the distribution in [0, 1].

What is assumed is the mean *given the past*. Single requests break it: those that meet the same queue are missed
together, and a queue near its capacity remembers for minutes. So an observation is a block, the share of good requests
among n neighbours; nothing is assumed of what goes on inside a block (they may all share one fate). The block is as long
as the delays themselves say: SAFETY times their integrated autocorrelation time (Sokal's window), measured anew at every
look. That step is not proved; it is measured on simulated queues (tests/workloads/test_sequential.py, M/M/1, objective 95 %):
a rate of 93 % was called held in 16 to 75 % of the runs with fixed blocks of one TTFT limit, with these in 0 to 3 %. At 94 % it
was up to 6 %: so close to the objective a queue remembers for longer than a probe lasts.

It has a price. Against an objective of 0.95, even a faultless server needs 68 blocks at 95 %.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# How boldly each share of the first capital is bet. The boldest has half of it: a server under its capacity misses next
# to nothing, and then every block multiplies it by 1 / objective, which is all that this game pays.
UP = ((1.0, 0.5), (0.7, 0.25), (0.35, 0.25))
DOWN = ((0.02, 0.25), (0.06, 0.25), (0.15, 0.25), (0.4, 0.25))

SAFETY = 1.5
"""Blocks per autocorrelation time. At 1.0 up to 14 % of the rates of 93 % were held against an objective of 95 %."""

SOKAL_WINDOW = 5.0
FIRST_LOOK = 4
LOOK_GROWTH = (
    1.1  # the block's length changes from look to look: each look is a chance of error, so they are few
)


class Decision(StrEnum):
    """What the observations say of the objective so far."""

    OVER = "over"
    UNDER = "under"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Bounds:
    """A share; low and high hold with the test's own confidence. value None: nothing was observed."""

    value: float | None
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        value = None if self.value is None else round(self.value, 4)
        return {"value": value, "low": round(self.low, 4), "high": round(self.high, 4)}


NOTHING_SEEN = Bounds(None, 0.0, 1.0)


def decide(blocks: FloatArray, objective: float, over_risk: float, under_risk: float) -> Decision:
    """The first decision that these blocks, in their order, lead to. Each risk is the chance of that error."""
    up, down = _first(_up(blocks, objective), over_risk), _first(_down(blocks, objective), under_risk)
    if up is None and down is None:
        return Decision.OPEN
    return Decision.OVER if down is None or (up is not None and up <= down) else Decision.UNDER


def bounds(blocks: FloatArray, over_risk: float, under_risk: float) -> Bounds:
    """Their mean, with the means below and above which the bets were won."""
    if not blocks.size:
        return NOTHING_SEEN
    low = _edge(lambda m: _first(_up(blocks, m), over_risk) is not None)
    high = 1.0 - _edge(lambda m: _first(_down(blocks, 1.0 - m), under_risk) is not None)
    return Bounds(float(blocks.mean()), low, high)


def fewest_blocks(objective: float, risk: float) -> int:
    """How many faultless blocks it takes to decide that the mean is over."""
    count = math.ceil(math.log(1 / risk) / -math.log(objective))
    while _first(_up(np.ones(count), objective), risk) is None:
        count += 1
    return count


def correlation_time(series: FloatArray) -> float:
    """The integrated autocorrelation time, in steps of the series; 1 where neighbours have nothing to do with each other.

    1 + 2 * sum of the autocorrelations up to the first lag that is SOKAL_WINDOW times the sum so far (Sokal 1997).
    """
    count = len(series)
    centred = series - series.mean() if count else series
    power = float(centred @ centred)
    if power <= 1e-18 * max(1, count):
        return 1.0
    spectrum = np.fft.rfft(centred, 2 * count)
    correlations = np.fft.irfft(spectrum * np.conj(spectrum))[:count] / power
    sums = 2 * np.cumsum(correlations) - 1
    settled = np.flatnonzero(np.arange(count) >= SOKAL_WINDOW * sums)
    return max(1.0, float(sums[settled[0]] if settled.size else sums[-1]))


def merged(series: FloatArray, length: int) -> FloatArray:
    """Means of `length` neighbours each; what is left at the end is dropped."""
    count = len(series) // length
    return np.asarray(series[: count * length].reshape(count, length).mean(axis=1))


def independent(shares: FloatArray, delays: FloatArray) -> tuple[FloatArray, int]:
    """Blocks long enough to stand for one observation, and of how many of the given ones each is made."""
    length = math.ceil(SAFETY * correlation_time(delays))
    return merged(shares, length), length


def next_look(count: int) -> int:
    """How many blocks the look after the one at `count` waits for."""
    return max(FIRST_LOOK, count + 1, math.ceil(count * LOOK_GROWTH)) if count else FIRST_LOOK


def _first(log_capital: FloatArray, risk: float) -> int | None:
    won = np.flatnonzero(log_capital >= -math.log(risk))
    return int(won[0]) + 1 if won.size else None


def _up(blocks: FloatArray, m: float) -> FloatArray:
    return _mixed(UP, (blocks - m) / m)


def _down(blocks: FloatArray, m: float) -> FloatArray:
    return _mixed(DOWN, (m - blocks) / (1 - m))


def _mixed(bets: tuple[tuple[float, float], ...], gains: FloatArray) -> FloatArray:
    """Log of the capital after each block."""
    with np.errstate(divide="ignore"):  # the boldest bet may lose all that it had
        paths = [math.log(share) + np.cumsum(np.log1p(boldness * gains)) for boldness, share in bets]
    return np.asarray(np.logaddexp.reduce(paths, axis=0))


def _edge(won: Callable[[float], bool]) -> float:
    """The largest mean in (0, 1) for which the bet was won; 0 where there is none. Winning gets harder as it rises."""
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if won(middle) else (low, middle)
    return low
