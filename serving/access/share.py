"""Bytes of memory that many take parts of while they grow: who waits, who goes on. Pure; no clock, no tasks.

Those who hold a part and find that they need more could lock each other: all hold, all wait. So a reserve is kept that
only the eldest may draw on; it gets on, ends, and the next is eldest.

Who wants little does not wait behind who wants much: small wants go first, and a part is kept free of large ones for them.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")


class Share(Generic[K]):
    """`size_bytes` in all, of which `reserve_bytes` are the eldest holder's alone, and `small_part_bytes` are kept from all
    who want more than `small_bytes`. Keys are compared and hashed."""

    def __init__(
        self, size_bytes: int, reserve_bytes: int, small_bytes: int = 0, small_part_bytes: int = 0
    ) -> None:
        if not 0 <= reserve_bytes <= size_bytes:
            raise ValueError("the reserve is a part of the share")
        self.size_bytes = size_bytes
        self.reserve_bytes = reserve_bytes
        self.small_bytes = small_bytes
        self.small_part_bytes = small_part_bytes
        self._held: OrderedDict[K, int] = OrderedDict()
        self._asked: OrderedDict[K, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Share {self.held_bytes} of {self.size_bytes} B, {len(self._held)} hold, {len(self._asked)} wait>"

    @property
    def held_bytes(self) -> int:
        """What is taken; never above size_bytes."""
        return sum(self._held.values())

    @property
    def waiting_bytes(self) -> int:
        """What those who wait lack."""
        return sum(most - self._held.get(key, 0) for key, most in self._asked.items())

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._asked)

    def of(self, key: K) -> int:
        """Bytes that the key holds."""
        return self._held.get(key, 0)

    def ask(self, key: K, most: int) -> list[K]:
        """The key wants to hold `most` bytes in all; returns who may go on now, in order (the key too, or not yet).

        Raises ValueError for more than the whole share: that would wait for ever.
        """
        if most > self.size_bytes:
            raise ValueError(f"{most} of {self.size_bytes} bytes")
        self._held.setdefault(key, 0)
        self._asked[key] = most
        return self._grant()

    def keep(self, key: K, most: int) -> list[K]:
        """The key gives back all above `most`; returns who may go on now."""
        if self._held.get(key, 0) > most:
            self._held[key] = most
        return self._grant()

    def leave(self, key: K) -> list[K]:
        """The key gives back everything, and waits no more; returns who may go on now. Idempotent."""
        self._held.pop(key, None)
        self._asked.pop(key, None)
        return self._grant()

    def check(self) -> None:
        """Raises AssertionError unless the bounds hold and nobody waits for what is free."""
        assert 0 <= self.held_bytes <= self.size_bytes, self
        assert self._asked.keys() <= self._held.keys(), self
        assert self._next() is None, self

    def _lacks(self, key: K) -> int:
        return self._asked[key] - self._held[key]

    def _free(self, key: K) -> int:
        free = self.size_bytes - self.held_bytes
        if key == next(iter(self._held)):
            return free
        free -= self.reserve_bytes
        return free if self._is_small(key) else free - self.small_part_bytes

    def _is_small(self, key: K) -> bool:
        return self._asked[key] <= self.small_bytes

    def _next(self) -> K | None:
        """Who goes on now: the eldest, else the first small one, else the first of all. In each kind nobody is overtaken."""
        if not self._asked:
            return None
        small = next((key for key in self._asked if self._is_small(key)), None)
        large = next((key for key in self._asked if not self._is_small(key)), None)
        for key in (next(iter(self._held)), small, large):
            if key is not None and key in self._asked and self._lacks(key) <= self._free(key):
                return key
        return None

    def _grant(self) -> list[K]:
        granted: list[K] = []
        while (key := self._next()) is not None:
            self._held[key] = max(self._held[key], self._asked.pop(key))
            granted.append(key)
        return granted
