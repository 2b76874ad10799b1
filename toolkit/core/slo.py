"""Service levels as pure maths: percentiles with their certainty, TTFT, ITL, attainment, goodput. Seconds everywhere.

Definitions, since the same words differ between tools:

- TTFT: first content token - start. The start is named by the caller: the intended arrival (what a user felt) or the
  actual send (what the server did). A chunk that carries only a role is no token.
- ITL: gaps between successive token-bearing events, pooled over requests; a chunk of several tokens is one gap.
- Percentile: linear interpolation (numpy's default), over requests that got the value.
- Attainment: good requests / offered requests. What failed, was refused or never sent is offered and not good.
- Goodput: good requests / second of the offered window.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from toolkit.core.sample import SloClass

CONFIDENCE = 0.99  # MLPerf LoadGen's early stopping: c = 0.99, d = 0


@dataclass(frozen=True, slots=True)
class Slo:
    """What a class promises per request. ttft_s: from the intended arrival; itl_p95_s: P95 of the request's own gaps."""

    ttft_s: float | None = None
    itl_p95_s: float | None = None

    def met(self, ttft_s: float | None, itl_s: Sequence[float]) -> bool:
        """Whether a request that completed kept the promise. No first token: not kept, unless nothing is promised."""
        if self.ttft_s is not None and (ttft_s is None or ttft_s > self.ttft_s):
            return False
        return self.itl_p95_s is None or not itl_s or percentile(itl_s, 0.95) <= self.itl_p95_s


# TTFT from the article's section 6.1: conversations 800 ms, image and text 3 s, offline work throughput only. It names
# no ITL; 50 and 100 ms per token are reading speed with room to spare (20 and 10 tokens/s).
DEFAULT_SLOS: Mapping[SloClass, Slo] = MappingProxyType(
    {
        SloClass.REALTIME: Slo(ttft_s=0.8, itl_p95_s=0.05),
        SloClass.STANDARD: Slo(ttft_s=3.0, itl_p95_s=0.1),
        SloClass.BATCH: Slo(),
    }
)


@dataclass(frozen=True, slots=True)
class Quantile:
    """A percentile with what is known about it.

    estimate: by linear interpolation. lower: the true value is at least this, with 99 % confidence; None where the
    samples are too few even for that. upper: MLPerf's
    early-stopping estimate, at or above the true value with 99 % confidence; None where `samples` < `needed`, and
    then the percentile must be shown as the bound `lower` and never as a value.
    """

    p: float
    samples: int
    needed: int
    estimate: float
    lower: float | None
    upper: float | None

    @property
    def firm(self) -> bool:
        """Whether there are enough samples to show the estimate as a value."""
        return self.upper is not None


def percentile(values: Iterable[float], p: float) -> float:
    """The p-quantile (0..1) by linear interpolation. Raises ValueError when there is no value."""
    return _interpolate(sorted(values), p)


def quantile(values: Iterable[float], p: float) -> Quantile | None:
    """The p-quantile with its bounds; None when there is no value."""
    ordered = sorted(values)
    n = len(ordered)
    if not n:
        return None
    t, rank = overruns_allowed(n, p), _lower_rank(n, p)
    return Quantile(
        p=p,
        samples=n,
        needed=samples_needed(p),
        estimate=_interpolate(ordered, p),
        lower=ordered[rank - 1] if rank else None,
        upper=ordered[n - t] if t else None,
    )


def overruns_allowed(samples: int, p: float) -> int:
    """How many of the samples may lie at or over a bound that the p-quantile meets with 99 % confidence.

    MLPerf's rule: the largest t for which P(Binomial(samples, 1 - p) <= t) <= 1 - c; 0 when not even t = 1 will do.
    """
    low, high = 0, samples
    while low < high:
        middle = (low + high + 1) // 2
        if _binomial_cdf(middle, samples, 1 - p) <= 1 - CONFIDENCE:
            low = middle
        else:
            high = middle - 1
    return low


def samples_needed(p: float) -> int:
    """The fewest samples from which a p-quantile may be shown as a value: p90 64, p95 130, p99 662, p99.9 6,636."""
    low, high = 1, 2
    while overruns_allowed(high, p) < 1:
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if overruns_allowed(middle, p) >= 1:
            high = middle
        else:
            low = middle + 1
    return low


def ttft(start_s: float | None, first_token_s: float | None) -> float | None:
    """Time to first token from that start; None where either did not happen."""
    return None if start_s is None or first_token_s is None else first_token_s - start_s


def gaps(token_times_s: Sequence[float]) -> tuple[float, ...]:
    """The inter-token latencies of one request."""
    return tuple(after - before for before, after in itertools.pairwise(token_times_s))


def tpot(first_token_s: float, last_token_s: float, tokens: int) -> float | None:
    """Time per output token after the first, (last - first) / (tokens - 1); None for fewer than two tokens."""
    return (last_token_s - first_token_s) / (tokens - 1) if tokens > 1 else None


def attainment(good: int, offered: int) -> float | None:
    """Good over offered; None when nothing was offered."""
    return good / offered if offered else None


def goodput(good: int, window_s: float) -> float:
    """Good requests per second of the window. Raises ValueError for an empty window."""
    if window_s <= 0:
        raise ValueError("a window has a positive length")
    return good / window_s


def _interpolate(ordered: Sequence[float], p: float) -> float:
    if not ordered:
        raise ValueError("no value has no percentile")
    if not 0 <= p <= 1:
        raise ValueError("p is between 0 and 1")
    at = (len(ordered) - 1) * p
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def _lower_rank(samples: int, p: float) -> int:
    # The largest rank k (1-based) with P(Binomial(samples, p) >= k) >= c: as many lie at or under the true quantile.
    low, high = 0, samples
    while low < high:
        middle = (low + high + 1) // 2
        if _binomial_cdf(middle - 1, samples, p) <= 1 - CONFIDENCE:
            low = middle
        else:
            high = middle - 1
    return low


def _binomial_cdf(k: int, n: int, p: float) -> float:
    """P(X <= k) for X ~ Binomial(n, p), summed outward from its largest term so that far tails cost nothing."""
    if k >= n or p <= 0:
        return 1.0
    if k < 0 or p >= 1:
        return 0.0
    mode = int((n + 1) * p)
    if k > mode:  # the upper tail is the small one
        return 1.0 - _tail(k + 1, n, p, step=1)
    return _tail(k, n, p, step=-1)


def _tail(start: int, n: int, p: float, step: int) -> float:
    log_term = (
        math.lgamma(n + 1)
        - math.lgamma(start + 1)
        - math.lgamma(n - start + 1)
        + start * math.log(p)
        + (n - start) * math.log1p(-p)
    )
    term = total = math.exp(log_term)
    odds = p / (1 - p)
    k = start
    while term > total * 1e-16 and 0 <= k + step <= n:
        term *= (n - k) / (k + 1) * odds if step > 0 else k / (n - k + 1) / odds
        k += step
        total += term
    return total
