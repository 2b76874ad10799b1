"""What each kind of request may have of the decodes while others want more. Pure.

    part    of the slots, or of the KV, that its requests inside have: the larger of the two
    rank    part / share: of those that wait the kind of the lowest rank goes first
    below   part < share / all shares x what all have together: a kind below its share is as good as due (order.py)

So while a kind below its share has somebody waiting, nobody of a higher rank enters: a flood of another kind cannot push it
below, only use what it leaves. It is dominant-resource fairness by weight (DRF: Ghodsi et al. 2011): many small requests take
up slots, few large ones KV, and neither is free. KV counts as the most that a request may use. What counts is what is held,
not what was served: a place in a decode is held for seconds, and who was away has nothing saved up. Nothing is taken from
those inside, so a share is reached as others leave.
"""

from collections import Counter
from collections.abc import Mapping


class Shares:
    """Who has how much. shares: weights by kind; none: there is one kind."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = dict(shares)
        self._slots, self._tokens = 1, 0
        self._inside: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._by: dict[str, tuple[str, int]] = {}

    @property
    def holders(self) -> set[str]:
        """Keys of the requests inside."""
        return set(self._by)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Those that share."""
        return tuple(self._shares)

    def retune(self, shares: Mapping[str, float]) -> None:
        """Other weights from now on."""
        self._shares = dict(shares)

    def measure(self, slots: int, tokens: int) -> None:
        """What there is to share. tokens: of KV; 0 where that is not known, and then slots alone count."""
        self._slots, self._tokens = slots, tokens

    def hold(self, key: str, kind: str, tokens: int) -> None:
        """A request goes inside. tokens: the most that it may use."""
        self._by[key] = kind, tokens
        self._inside[kind] += 1
        self._held[kind] += tokens

    def release(self, key: str) -> None:
        """It has left; nothing happens where it was not inside."""
        if key in self._by:
            kind, tokens = self._by.pop(key)
            self._inside[kind] -= 1
            self._held[kind] -= tokens

    def rank(self, kind: str) -> float:
        """Part per share; the lowest goes first."""
        return self._part(self._inside[kind], self._held[kind]) / self._shares.get(kind, 1.0)

    def below(self, kind: str) -> bool:
        """Whether it has less than its share of what all have. Never where there is one kind."""
        if kind not in self._shares:
            return False
        together = self._part(len(self._by), self._held.total())
        part = self._part(self._inside[kind], self._held[kind])
        return part * sum(self._shares.values()) < self._shares[kind] * together

    def of_slots(self, kind: str) -> float:
        """About what part of the slots that free goes to the kind while it has somebody waiting: what it has of those inside,
        or its share beside the other kinds that are inside, if that is more."""
        if kind not in self._shares:
            return 1.0
        rivals = {kind, *(other for other in self._shares if self._inside[other])}
        share = self._shares[kind] / sum(self._shares[other] for other in rivals)
        return max(share, self._inside[kind] / max(1, len(self._by)))

    def kind(self, key: str) -> str:
        """Of a request inside."""
        return self._by[key][0]

    def held(self, kind: str) -> int:
        """The most tokens that its requests inside may use."""
        return self._held[kind]

    def check(self) -> None:
        """Raise AssertionError unless what is held is somebody's."""
        held: Counter[str] = Counter()
        for kind, tokens in self._by.values():
            held[kind] += tokens
        assert +held == +self._held, (held, self._held)
        assert +Counter(kind for kind, _ in self._by.values()) == +self._inside, self._inside

    def _part(self, requests: int, tokens: int) -> float:
        return max(requests / self._slots, tokens / self._tokens if self._tokens else 0.0)
