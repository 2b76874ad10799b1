"""What a request is given less of so that its first token still comes in time: decided before it waits, while that helps. Pure.

    in time      outlook(size) <= PLANNED x left            outlook: wait + first token, seconds, as admission reckons them

As it is, where that is in time. Else the first of these that is: smaller images (the largest of the STEPS down to what is
allowed; they cost preparing them again), a lower max_tokens (halved, down to the least allowed; it makes a request shorter, which then
waits less, not prefill faster), both. None where nothing allowed helps: then it is refused, or answered elsewhere.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from serving.schedule.lateness import PLANNED

STEPS = (0.75, 0.5, 0.25, 0.125)
"""Shares of the image tokens that are tried: few, so that pictures made smaller are found again in the cache."""


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of one choice: text and images of the prompt, answer at most."""

    text: int
    images: int
    answer: int

    @property
    def prompt(self) -> int:
        return self.text + self.images


@dataclass(frozen=True, slots=True)
class Allowed:
    """What operator and client bear. image_share: least part of the image tokens; 1: all. answer: least max_tokens; 0: as asked."""

    image_share: float = 1.0
    answer: int = 0


Outlook = Callable[[Size], float]


def lighter(size: Size, left_s: float, allowed: Allowed, outlook: Outlook, remake_s: float) -> Size | None:
    """What to ask of the engines; `size` itself where nothing has to be given up. remake_s: to prepare the images again."""
    if outlook(size) <= PLANNED * left_s:
        return size
    for lesser in _lesser(size, allowed):
        again_s = remake_s if lesser.images < size.images else 0.0
        if again_s + outlook(lesser) <= PLANNED * left_s:
            return lesser
    return None


def _lesser(size: Size, allowed: Allowed) -> Iterator[Size]:
    shares = [share for share in STEPS if share > allowed.image_share] + [allowed.image_share]
    images = [int(share * size.images) for share in shares if share < 1 and size.images]
    answers = []
    answer = size.answer
    while 0 < allowed.answer < answer:
        answer = max(allowed.answer, answer // 2)
        answers.append(answer)
    yield from (replace(size, images=fewer) for fewer in images)
    yield from (replace(size, answer=shorter) for shorter in answers)
    if answers:
        yield from (replace(size, images=fewer, answer=answers[-1]) for fewer in images)
