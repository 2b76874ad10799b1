"""What is remembered, bounded by the bytes it takes: least recently used goes first. Sans-I/O; time is passed in."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES = 1_000
"""Counted for each entry besides its size: key, record, place in the table (measured: 0.6 kB)."""

NEVER = float("inf")


class Store(Generic[K, V]):
    """A table of at most `most_bytes`, which counts each entry as its size and ENTRY_BYTES. 0 keeps nothing."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._entries: OrderedDict[K, tuple[V, int, float]] = OrderedDict()
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """What the entries take; never above the bound."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        """The value, which now counts as used last; None where there is none, or its time is over."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, _, ends = entry
        if now >= ends:
            self.drop(key)
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, size_bytes: int, ends: float = NEVER) -> None:
        """Keeps the value until `ends`, in place of an older one; one that could not fit alone is not kept."""
        self.drop(key)
        size_bytes += ENTRY_BYTES
        if size_bytes > self._most_bytes:
            return
        while self._bytes + size_bytes > self._most_bytes:
            _, (_, freed, _) = self._entries.popitem(last=False)
            self._bytes -= freed
        self._entries[key] = (value, size_bytes, ends)
        self._bytes += size_bytes

    def drop(self, key: K) -> None:
        """Forgets the key, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[1]

    def check(self) -> None:
        """Raises AssertionError unless the bytes add up and keep the bound."""
        assert self._bytes == sum(size for _, size, _ in self._entries.values()), "bytes do not add up"
        assert 0 <= self._bytes <= self._most_bytes, "over the bound"
