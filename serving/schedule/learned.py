"""Durations learned from what happens, which lose their say when nobody renews them. Pure.

A refusal that follows from an estimate also keeps the estimate from being corrected. So one that has not been renewed for
longer than such a thing takes halves with every `HALF_LIFE_S`, until the gateway tries again.
"""

HALF_LIFE_S = 10.0


class Learned:
    """One duration, seconds; None until the first observation. down, up: how far an observation below, above moves it."""

    def __init__(self, down: float, up: float) -> None:
        self._down, self._up = down, up
        self._value: float | None = None
        self._at = 0.0

    def add(self, seconds: float, now: float) -> None:
        value = self.read(now)
        if value is None:
            self._value = seconds
        else:
            self._value = value + (self._down if seconds < value else self._up) * (seconds - value)
        self._at = now

    def read(self, now: float) -> float | None:
        """The duration as of now."""
        if self._value is None:
            return None
        stale_s = now - self._at - max(HALF_LIFE_S, 2.0 * self._value)
        return self._value * 0.5 ** (stale_s / HALF_LIFE_S) if stale_s > 0 else self._value
