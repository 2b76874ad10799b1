"""How long the engines take, as far as it was learned: slots held, first tokens. Pure; durations in seconds."""

from serving.schedule.learned import Learned
from serving.schedule.slope import Slope

UNKNOWN_SLOT_S = 1.0
"""Taken for the time in the engines until one request has been there: it only shapes the first Retry-After."""


class Estimates:
    """Short and long requests apart."""

    def __init__(self) -> None:
        self._slot = {short: Learned(0.1, 0.1) for short in (True, False)}
        self._first = {short: Learned(0.1, 0.1) for short in (True, False)}
        self._quickest = {short: Learned(1.0, 0.002) for short in (True, False)}
        self._prompt = {True: 0.0, False: 0.0}  # tokens, the usual of those whose first tokens are above
        self._slope = Slope()

    def known(self, now: float) -> bool:
        """Whether any request has been in the engines of late."""
        return any(learned.read(now) for learned in self._slot.values())

    def first_token(self, short: bool, took_s: float, now: float, prompt: int = 0) -> float:
        """A first token came after so long; returns what the quickest of its kind took before, itself where it is the first.
        prompt: tokens, 0 where they are not known."""
        quickest = self._quickest[short].read(now)
        if prompt:
            usual = self._prompt[short]
            self._prompt[short] = usual + 0.1 * (prompt - usual) if usual else float(prompt)
            self._slope.add(prompt, took_s)
        self._quickest[short].add(took_s, now)
        self._first[short].add(took_s, now)
        return took_s if quickest is None else quickest

    def no_first_token(self, short: bool, waited_s: float, now: float) -> None:
        """None came in so long."""
        self._first[short].add(waited_s, now)

    def left(self, short: bool, held_s: float, now: float) -> None:
        """A slot was held for so long."""
        self._slot[short].add(held_s, now)

    def slot_frees_s(self, short: bool, slots: int, now: float) -> float:
        """How often one of so many slots frees when all are held by requests of that length."""
        mine, others = self._slot[short].read(now), self._slot[not short].read(now)
        held_s = mine if mine is not None else others if others is not None else UNKNOWN_SLOT_S
        return held_s / slots

    def first_token_s(self, short: bool, load: float, now: float, prompt: int = 0) -> float:
        """About what the engines would take: the quickest of late while they are empty (load 0), the usual while all slots
        are held (1); 0 while nothing is known. An engine is thus never left idle because it was slow under load. The usual is
        that of a usual prompt of its kind; a larger or smaller one takes as much more or less as sizes have shown."""
        usual, quickest = self._first[short].read(now) or 0.0, self._quickest[short].read(now) or 0.0
        if prompt and self._prompt[short]:
            usual = max(quickest, usual + self._slope.per_token_s * (prompt - self._prompt[short]))
        return quickest + max(0.0, usual - quickest) * min(1.0, load)
