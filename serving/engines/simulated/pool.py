"""The paged KV pool: who holds how many pages. Pure bookkeeping; a page holds `page_size` tokens of one owner."""

from dataclasses import dataclass


class NoRoom(Exception):
    """Not enough free pages."""


@dataclass(slots=True)
class _Held:
    tokens: int
    pages: int


class PagePool:
    """Pages by owner. What `leak` takes is lost until `flush`, as an engine's bug would lose it."""

    def __init__(self, tokens: int, page_size: int = 1) -> None:
        self.page_size = page_size
        self.pages = tokens // page_size
        self._free = self.pages
        self._leaked = 0
        self._held: dict[str, _Held] = {}

    @property
    def capacity(self) -> int:
        """Tokens."""
        return self.pages * self.page_size

    @property
    def free_tokens(self) -> int:
        return self._free * self.page_size

    @property
    def used_tokens(self) -> int:
        """Tokens in pages that cannot be given out."""
        return self.capacity - self.free_tokens

    @property
    def leaked_pages(self) -> int:
        return self._leaked

    def holds(self, owner: str) -> int:
        """Tokens of the owner; 0 when it holds nothing."""
        held = self._held.get(owner)
        return held.tokens if held else 0

    def extend(self, owner: str, tokens: int) -> None:
        """Give the owner room for `tokens` more. Raises NoRoom and changes nothing."""
        held = self._held.get(owner) or _Held(0, 0)
        more = self._pages_for(held.tokens + tokens) - held.pages
        if more > self._free:
            raise NoRoom(f"{more} pages asked, {self._free} free")
        self._free -= more
        self._held[owner] = _Held(held.tokens + tokens, held.pages + more)

    def release(self, owner: str, leak: int = 0) -> None:
        """Take back all of the owner's pages but `leak`. Idempotent."""
        held = self._held.pop(owner, None)
        if held is not None:
            lost = min(leak, held.pages)
            self._leaked += lost
            self._free += held.pages - lost

    def rename(self, owner: str, new: str) -> None:
        """Hand everything to another owner that holds nothing yet."""
        if new in self._held:
            raise ValueError(f"{new} holds pages already")
        if owner in self._held:
            self._held[new] = self._held.pop(owner)

    def flush(self) -> None:
        """Recover leaked pages."""
        self._free += self._leaked
        self._leaked = 0

    def check(self) -> None:
        """AssertionError unless every page is free, leaked or held, and every owner has the pages of its tokens."""
        held = sum(one.pages for one in self._held.values())
        assert self._free + self._leaked + held == self.pages, (self._free, self._leaked, held, self.pages)
        assert min(self._free, self._leaked) >= 0
        for owner, one in self._held.items():
            assert one.pages == self._pages_for(one.tokens), owner

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)
