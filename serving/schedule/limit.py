"""How many requests the engines get at once: additive increase, multiplicative decrease. Pure.

AIMD (Chiu and Jain 1989) with slow start (Jacobson 1988), on first tokens instead of lost packets, as the AIMD limit of
Netflix's concurrency-limits does on timeouts:

    a first token in time, while at least half of the limit is in use:  limit += 1 in slow start, then 1 / limit
    a late one, none within the budget, or a 429/503 of an engine:      limit *= 0.7, once per round trip

Slow start ends with the first decrease, or before it would overshoot: with the first token that took more than a quarter
of what is in time (the idea of HyStart, RFC 9406: growing delay announces the limit).

Once per round trip: a request that entered before the last decrease says nothing about the new limit. Gradient2 and Vegas,
which compare with the best time ever seen, were weighed: a first token takes longer for a longer prompt and a fuller batch,
so they hold a pair far below what it can do within its promise (docs/decisions/0022-who-goes-first.md).
"""

from math import inf

START = 8
DECREASE = 0.7
"""CUBIC's factor (RFC 9438 section 4.6): gentle enough not to empty a batch, and 64 is down to 8 in six round trips."""
SLOW_START = 0.25


class InFlightLimit:
    """Stays between `least` and `most`. Not adaptive: always `most`."""

    def __init__(self, least: int, most: int, adaptive: bool) -> None:
        self._least, self._most, self._adaptive = min(least, most), most, adaptive
        self._value = float(max(self._least, min(most, START)) if adaptive else most)
        self._starting = True
        self._decreased_at = -inf

    @property
    def value(self) -> int:
        """Requests."""
        return int(max(self._least, min(self._most, self._value))) if self._adaptive else self._most

    def retune(self, least: int, most: int, adaptive: bool) -> None:
        """Other bounds from now on. What was learned outside of them is kept: it holds again when they are taken back."""
        self._least, self._most, self._adaptive = min(least, most), most, adaptive

    def in_time(self, part: float, running: int) -> None:
        """A first token came, after that part of what is in time, with that many requests inside."""
        self._starting = self._starting and part <= SLOW_START
        if self._adaptive and 2 * running >= self.value:
            held = max(float(self._least), self._value)
            more = held + (1.0 if self._starting else 1.0 / held)
            self._value = max(self._value, min(float(self._most), more))

    def too_much(self, entered: float, now: float) -> None:
        """A request that entered then was late, or was refused by an engine."""
        if self._adaptive and entered >= self._decreased_at:
            self._value = max(float(self._least), min(self._value, float(self._most)) * DECREASE)
            self._starting = False
            self._decreased_at = now
