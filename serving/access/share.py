"""Bytes of memory that many take parts of while they grow: who waits, who goes on. Pure; no clock, no tasks.

Those who hold a part and find that they need more could lock each other: all hold, all wait. So a reserve is kept that
only the eldest may draw on; it gets on, ends, and the next is eldest.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")


class Share(Generic[K]):
    """`size_bytes` in all, of which `reserve_bytes` are the eldest holder's alone. Keys are compared and hashed."""

    def __init__(self, size_bytes: int, reserve_bytes: int) -> None:
        if not 0 <= reserve_bytes <= size_bytes:
            raise ValueError("the reserve is a part of the share")
        self.size_bytes = size_bytes
        self.reserve_bytes = reserve_bytes
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
        if self._asked:
            first = next(iter(self._asked))
            assert self._lacks(first) > self._free(first), self
            eldest = next(iter(self._held))
            assert eldest not in self._asked or self._lacks(eldest) > self._free(eldest), self

    def _lacks(self, key: K) -> int:
        return self._asked[key] - self._held[key]

    def _free(self, key: K) -> int:
        free = self.size_bytes - self.held_bytes
        return free if key == next(iter(self._held)) else free - self.reserve_bytes

    def _grant(self) -> list[K]:
        """In turn of asking, but the eldest first; stops at the first who has to wait, so nobody is overtaken for ever."""
        granted: list[K] = []
        while self._asked:
            eldest = next(iter(self._held))
            first = eldest if eldest in self._asked and self._lacks(eldest) <= self._free(eldest) else None
            key = next(iter(self._asked)) if first is None else first
            if self._lacks(key) > self._free(key):
                break
            self._held[key] = max(self._held[key], self._asked.pop(key))
            granted.append(key)
        return granted
