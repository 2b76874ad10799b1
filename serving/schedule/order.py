"""Who of the waiting goes next. Pure; every question brings `now`.

Each SLO class has two lanes, short and long, first in first out once due. Due requests go before all others; where several
lanes have one, they take turns by weight, the class's and four times that for its short lane (start-time fair queueing: Goyal,
Vin, Cheng 1996): every lane has a tag, the lowest goes, and moves on by 1 / weight; a lane that was empty starts at the tag of
the last turn. So a lane that has not just had its turn gets the very next slot, whoever else waits, and none waits for ever:

    slots given away from the moment a request is due until its own, its own included
        <= k + sum over the other lanes of (floor(k x weight / own weight) + 1)         k: its place in its lane

Where nobody is due, the highest priority goes (priority.py), of equal ones whoever was ready first. Who has a turn and does
not fit keeps it (entry.py); who passes it meanwhile, where it cannot be, uses up no turn.

Kinds of requests that share the decodes (shares.py) have lanes of their own. The kind of the lowest rank goes first, and one
below its share counts as due; the bound above is then of the slots that a kind gets. There is one kind unless pools are configured.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from serving.schedule.priority import Lane, Rules, Waiting, waiting
from serving.schedule.shares import Shares
from toolkit.core.sample import SloClass

Fits = Callable[[Waiting], bool]
"""Whether there is room for it."""


class Order:
    """The waiting requests. `ready` of those put in must not decrease within a lane."""

    def __init__(self, rules: Rules, shares: Shares) -> None:
        self._short_tokens = rules.short_tokens
        self._shares = shares
        self._lanes: dict[Lane, dict[str, Waiting]] = {
            (slo, short, kind): {}
            for kind in ("", *rules.shares)
            for slo in SloClass
            for short in (True, False)
        }
        self._tags: defaultdict[Lane, float] = defaultdict(float)
        self._turns: defaultdict[str, float] = defaultdict(float)
        self._all: dict[str, Waiting] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._all.values())

    @property
    def shortest(self) -> int:
        """Tokens of the shortest that waits; 0 when nobody does."""
        return min((one.tokens for one in self._all.values()), default=0)

    def put(self, one: Waiting) -> None:
        self._all[one.key] = self._lanes.setdefault(one.lane, {})[one.key] = one

    def remove(self, key: str) -> None:
        """Take it out, wherever it stands; nothing happens when it is not there."""
        one = self._all.pop(key, None)
        if one is not None:
            del self._lanes[one.lane][key]

    def retune(self, rules: Rules) -> None:
        """Other thresholds, weights and lengths from now on, for those that wait too; each waits since it was ready."""
        self._short_tokens = rules.short_tokens
        for one in sorted(self._all.values(), key=lambda other: other.ready):
            self.remove(one.key)
            self.put(
                waiting(
                    rules, one.key, one.slo_class, one.workload_class, one.tokens, one.ready, one.deadline
                )
            )

    def turn(self, now: float) -> Waiting | None:
        """The due one whose turn it is; None when nobody is due."""
        firsts = [_first(lane) for lane in self._lanes.values() if lane]
        return min(
            (first for first in firsts if self._is_due(first, now)),
            key=lambda first: (self._shares.rank(first.kind), self._tag(first), first.due),
            default=None,
        )

    def best(self, now: float, fits: Fits) -> Waiting | None:
        """Of those that fit, of the kind of the lowest rank, the one of the highest priority."""
        return self._highest([one for one in self._all.values() if fits(one)], now)

    def passing(self, now: float, fits: Fits) -> Waiting | None:
        """Of those that fit, the one that goes before the others while the one whose turn it is cannot: who is due for the
        longest, else the highest priority."""
        fitting = [one for one in self._all.values() if fits(one)]
        due = [one for one in fitting if self._is_due(one, now)]
        if not due:
            return self._highest(fitting, now)
        return min(due, key=lambda one: (self._shares.rank(one.kind), one.due))

    def enter(self, one: Waiting, now: float) -> None:
        """Take it out. Its lane has had its turn if it was the one whose turn it was; passing costs none."""
        if one is self.turn(now):
            self._turns[one.kind] = self._tag(one)
            self._tags[one.lane] = self._turns[one.kind] + 1.0 / one.turns
        self.remove(one.key)

    def lasts(self) -> list[Waiting]:
        """Who waits the longest from here on: the last of each lane."""
        return [next(reversed(lane.values())) for lane in self._lanes.values() if lane]

    def wait_s(self, one: Waiting, now: float, slot_s: Callable[[bool], float]) -> float:
        """About how long `one` would wait if it joined now, or still waits as the last of its lane, and nobody came after it.

        slot_s: how often a slot frees when short (True) or long requests hold them, seconds. The lesser of two: when all
        that are ahead by priority, or will be due before, have gone; and its threshold plus the turns that others then
        have, in the mean. A kind waits for its own part of the slots, in its own line; the least wait of any where it is not
        known yet.
        """
        kinds = self._shares.kinds
        if kinds and one.kind not in kinds:
            return min(self.wait_s(replace(one, kind=kind), now, slot_s) for kind in kinds)
        mine, part = one.priority(now, self._short_tokens), self._shares.of_slots(one.kind)
        frees_s = {short: slot_s(short) / part for short in (True, False)}
        rivals = [other for other in self._all.values() if other.kind == one.kind and other.key != one.key]
        ahead = [
            other for other in rivals if other.due <= now or other.priority(now, self._short_tokens) >= mine
        ]
        by_priority = sum(frees_s[other.short] for other in ahead)
        soon = min(one.due, now + by_priority)
        by_priority += sum(
            frees_s[other.short]
            for other in rivals
            if now < other.due <= soon and other.priority(now, self._short_tokens) < mine
        )
        place = len(self._lanes[one.lane]) + (one.key not in self._all)
        by_turns = max(0.0, one.due - now) + (place - 1) * frees_s[one.short]
        for lane in self._lanes.values():
            first = _first(lane) if lane else None
            if first is not None and first.kind == one.kind and first.lane != one.lane:
                turns = min(len(lane), (place - 1) * first.turns / one.turns + 0.5)
                by_turns += turns * frees_s[first.short]
        return min(by_priority, by_turns)

    def _highest(self, fitting: Sequence[Waiting], now: float) -> Waiting | None:
        return max(
            fitting,
            key=lambda one: (-self._shares.rank(one.kind), one.priority(now, self._short_tokens)),
            default=None,
        )

    def _is_due(self, one: Waiting, now: float) -> bool:
        return one.due <= now or self._shares.below(one.kind)

    def _tag(self, one: Waiting) -> float:
        return max(self._tags[one.lane], self._turns[one.kind])

    def check(self) -> None:
        """Raise AssertionError unless each stands in its own lane, once."""
        in_lanes = {key: one for lane in self._lanes.values() for key, one in lane.items()}
        assert in_lanes == self._all, self._all
        assert len(self._all) == sum(map(len, self._lanes.values())), self._all
        assert all(one.lane == lane for lane, held in self._lanes.items() for one in held.values())


def _first(lane: dict[str, Waiting]) -> Waiting:
    return next(iter(lane.values()))
