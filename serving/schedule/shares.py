"""What each kind of request may hold of the decodes while others want more. Pure.

    held   tokens that its requests inside may use (text + image + max_tokens x n), until they leave
    rank   held / share: of those that wait the kind of the lowest rank goes first
    below  held < share / all shares x all that is held: a kind below its share is as good as due (order.py)

So while a kind below its share has somebody waiting, nobody of a higher rank enters: a flood of another kind cannot push it
below, only use what it leaves. It is max-min fairness by weight, as for one resource in DRF (Ghodsi et al. 2011), over tokens
as in VTC (Sheng et al. 2024); but of what is held, not of what was served: a place in a decode is held for seconds, and who
was away has nothing saved up. Nothing is taken from those inside, so a share is reached as others leave.
"""

from collections import Counter
from collections.abc import Mapping


class Shares:
    """Who holds how much. shares: weights by kind; none: there is one kind."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = dict(shares)
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

    def hold(self, key: str, kind: str, tokens: int) -> None:
        """A request goes inside."""
        self._by[key] = kind, tokens
        self._held[kind] += tokens

    def release(self, key: str) -> None:
        """It has left; nothing happens where it was not inside."""
        kind, tokens = self._by.pop(key, ("", 0))
        self._held[kind] -= tokens

    def kind(self, key: str) -> str:
        """Of a request inside."""
        return self._by[key][0]

    def rank(self, kind: str) -> float:
        """Tokens per share; the lowest goes first."""
        return self._held[kind] / self._shares.get(kind, 1.0)

    def below(self, kind: str) -> bool:
        """Whether it holds less than its share of what is held; of a kind not known yet, whether any does. Never where there
        is one kind."""
        if kind not in self._shares:
            return any(map(self.below, self._shares))
        return self.rank(kind) * sum(self._shares.values()) < self._held.total()

    def held(self, kind: str) -> int:
        """Tokens."""
        return self._held[kind]

    def check(self) -> None:
        """Raise AssertionError unless what is held is somebody's."""
        held: Counter[str] = Counter()
        for kind, tokens in self._by.values():
            held[kind] += tokens
        assert +held == +self._held, (held, self._held)
