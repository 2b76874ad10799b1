"""Seconds per token, learned from pairs of size and time: least squares that forget. Pure.

    slope = cov(tokens, seconds) / var(tokens)       each new pair weighs SHARE, each older one (1 - SHARE) times as much

(The weighted form of Welford's update: D. West, CACM 22(9), 1979.) 0 until sizes have differed: what was not seen is not promised.
"""

SHARE = 0.05
LEAST_SPREAD = 32.0
"""Tokens by which sizes must have differed, as a standard deviation."""


class Slope:
    """One line's rise."""

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._seconds = self._var = self._cov = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        if self._tokens is None:
            self._tokens, self._seconds = float(tokens), seconds
            return
        more, longer = tokens - self._tokens, seconds - self._seconds
        self._tokens += SHARE * more
        self._seconds += SHARE * longer
        self._var = (1 - SHARE) * (self._var + SHARE * more * more)
        self._cov = (1 - SHARE) * (self._cov + SHARE * more * longer)

    @property
    def per_token_s(self) -> float:
        """Never below 0."""
        return max(0.0, self._cov / self._var) if self._var > LEAST_SPREAD**2 else 0.0
