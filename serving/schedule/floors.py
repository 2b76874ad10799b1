"""The least that each hop takes, learned: by when a hop must end so that those after it can still make it. Pure.

    by(hop) = deadline - SURE x (the least that each later hop took of late)            seconds, one monotonic clock

The deadline is arrival + TTFT budget. Most requests take longer than the least, so this refuses only what has no chance: what
has little is the admission's to judge, by what is usual (admit.py). Hops: fetch, prepare, wait, engines. The least is that
of requests with images, or without; a fall counts at once, a rise slowly, and what nobody renews loses its say (learned.py).
"""

from serving.schedule.learned import Learned

HOPS = ("body", "fetch", "prepare", "wait", "engines")
"""A wait may be none at all, so nothing is ever learned of it."""
SURE = 0.8
"""Part of the least that is counted on: the next may be quicker than any before it."""


class Floors:
    """What one gateway has seen."""

    def __init__(self) -> None:
        self._least = {(hop, images): Learned(1.0, 0.002) for hop in HOPS for images in (True, False)}

    def took(self, hop: str, images: bool, seconds: float, now: float) -> None:
        """A request, with images or without, spent so long in a hop that it left well."""
        self._least[hop, images].add(seconds, now)

    def after_s(self, hop: str, images: bool | None, now: float) -> float:
        """What the hops after this one take at least. images None: not known yet."""
        later = HOPS[HOPS.index(hop) + 1 :]
        kinds = (True, False) if images is None else (images,)
        return min(sum(SURE * (self._least[one, kind].read(now) or 0.0) for one in later) for kind in kinds)
