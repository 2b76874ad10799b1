"""What one gateway may use of each pool, now and if nothing changes. Pure; times on its own monotonic clock, seconds.

    GRANTED   from an answer on, for one life counted from its ask (so never longer than the ledger counts): what was granted
    ALONE     the server has been asked in vain for so long that it finds a gap in its service when it comes back, and still is:
              at first the lesser of grant and share, as others' grants may run; once all must have lapsed, the share
    NONE      nothing: a new gateway, or one that was frozen past the end of its grant. It begins anew

`share` is what the ledger wrote down for this case (words.Part.alone): in all at most the pool, about pool / gateways.

Why that never adds up to more than the pool: grants do not by the ledger's rule (script.py), nor do shares, and the lesser of
two is at most the grant. Who is ALONE knows that the ledger will begin its service anew, and so gives nobody more for one
life from then; by its end each has told what it keeps, or its leave, one life from its last vain ask, is over. All of it supposes
that the server is away for all gateways or for none. One that alone is cut off uses up to its share beside what others are
granted; with `alone` off it uses nothing then.
"""

from collections.abc import Mapping
from enum import Enum
from math import inf

from serving.schedule.shared.script import GAP
from serving.schedule.shared.words import NOTHING, Answer, Ask, Part, Said, Wanted

LIFE = 0.75
"""Part of ttl_s that a grant lives: the rest is for the others' next renewals, so that it is back with them within ttl_s."""
RENEW = 1 / 5
"""Part of a life after which it is asked for again."""
CALL = 0.08
"""Part of a life that one call may take; asked in vain, a gateway asks again that long after."""
DRIFT = 0.02
"""How much faster or slower than the server's a gateway's clock may run."""
HOLE = 1 / 3
"""Part of a life after which two vain asks are no longer taken for one outage."""
OUTAGE = (GAP + 3 * CALL) * (1 + DRIFT)
"""Part of a life from the first to the last vain ask that proves a gap: of the first ones, two may have been lost by chance."""


class Standing(Enum):
    """By what right pages are used."""

    GRANTED = "granted"
    ALONE = "alone"
    NONE = "none"


class Footing:
    """One gateway's standing with its ledger. Calls go one at a time: ask, then answered or failed."""

    def __init__(self, life_s: float, alone: bool) -> None:
        self.life_s = life_s
        self._mine_s = life_s * (1 - DRIFT)
        self._alone = alone
        self._parts: dict[str, Part] = {}
        self._until = -inf  # of the grant
        self._leave = -inf  # the end of the right to be ALONE
        self._lapsed = inf  # when nobody's grant runs any more
        self._failing = self._tried = -inf  # when the first and the last of those without a hole began
        self._asked = -inf
        self._epoch = 0
        self._number = 0
        self._ahead_ms: float | None = None  # the server's clock before ours

    def standing(self, now: float) -> tuple[Standing, float]:
        """And until when it is that, if nothing happens."""
        if now < self._until:
            return Standing.GRANTED, self._until
        if now < self._leave:
            return Standing.ALONE, self._leave
        return Standing.NONE, inf

    def usable(self, now: float) -> tuple[dict[str, int], float]:
        """Pages by pool, and until when they are that."""
        standing, until = self.standing(now)
        if standing is Standing.GRANTED:
            return {url: part.granted for url, part in self._parts.items()}, until
        if standing is Standing.NONE:
            return {}, until
        if now >= self._lapsed:
            return {url: part.alone for url, part in self._parts.items()}, until
        return {url: min(part) for url, part in self._parts.items()}, min(until, self._lapsed)

    def ask(
        self,
        now: float,
        pools: Mapping[str, int],
        held: Mapping[str, int],
        want: Mapping[str, Part],
        said: Said,
    ) -> Ask:
        """The next renewal. pools: all pages of each that is known. held: pages leased. want: what would be right. From now
        on no more is used than is held or right, whatever becomes of the ask."""
        standing, _ = self.standing(now)
        if standing is Standing.NONE:
            self._parts = {}
            self._lapsed, self._failing, self._tried = inf, -inf, -inf
        usable, _ = self.usable(now)
        wanted = {}
        for url, pages in pools.items():
            right = want.get(url, NOTHING) if self._alone else Part(want.get(url, NOTHING).granted)
            keep = Part(usable.get(url, 0), self._parts.get(url, NOTHING).alone)
            if standing is Standing.GRANTED:
                least = max(held.get(url, 0), right.granted)
                keep = Part(min(keep.granted, least), min(keep.alone, right.alone))
                self._parts[url] = keep
            wanted[url] = Wanted(pages, keep, right)
        if standing is Standing.GRANTED:
            self._parts = {url: self._parts[url] for url in pools}
        self._asked = now
        self._number += 1
        by = 0 if self._ahead_ms is None else int(1000 * (now + CALL * self.life_s) + self._ahead_ms)
        return Ask(int(1000 * self.life_s), self._epoch, self._number, by, wanted, said)

    def answered(self, answer: Answer, now: float) -> None:
        """To the last ask."""
        self._ahead_ms = answer.now_ms - 1000 * now
        if answer.late:
            return
        self._epoch = answer.epoch
        self._parts = dict(answer.parts)
        self._until = self._asked + self._mine_s
        self._leave = -inf
        self._lapsed, self._failing, self._tried = inf, -inf, -inf

    def failed(self) -> None:
        """No answer to the last ask."""
        life_s, asked = self.life_s, self._asked
        if not asked - self._tried < HOLE * life_s:
            self._failing = asked
        self._tried = asked
        if asked - self._failing >= OUTAGE * life_s:
            self._leave = asked + self._mine_s
            self._lapsed = min(self._lapsed, asked + (1 + CALL + DRIFT) * life_s)
