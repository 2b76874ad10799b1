"""One decode engine's KV pool, in pages. Pure.

    free = all - foreign - leased            leased: what our own requests may use at most. foreign: what others use
           at most bound - leased            bound: our part, where gateways share the pool (shared/)

An engine tells its use late: SGLang publishes a snapshot when it is idle and every 15 decode steps (sglang-interface, d). One
that differs from the last we saw was made between the two looks, when our own requests used no more than the most that was
leased between them. What it shows beyond that is somebody else's, for certain; less is never assumed to be.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """What an engine says of its pool. tokens: of each of its `ranks` equal parts (data-parallel ranks; a request lives in one).
    used_tokens: in all. stamp: differs between reports. queued: requests in its own queues, before their first token."""

    tokens: int
    page_size: int
    ranks: int
    used_tokens: int
    stamp: object
    queued: int = 0


class Pool:
    """Made by the first report of an engine; parts of pages do not count."""

    def __init__(self, report: Report) -> None:
        self.page_size = report.page_size
        self.rank_pages = report.tokens // report.page_size
        self.pages = report.ranks * self.rank_pages
        self.leased = 0
        self.foreign = 0
        self.bound: int | None = None
        self._most_leased = 0
        self._stamp: object = None

    def __repr__(self) -> str:
        return f"<Pool {self.pages} pages of {self.page_size}, {self.leased} leased, {self.foreign} foreign>"

    @property
    def tokens(self) -> int:
        """All that its pages hold."""
        return self.pages * self.page_size

    @property
    def free(self) -> int:
        """Pages for new leases; 0 when others use what we counted on."""
        return max(0, self.ours - self.leased)

    @property
    def ours(self) -> int:
        """Pages that our own leases may take in all."""
        left = max(0, self.pages - self.foreign)
        return left if self.bound is None else min(self.bound, left)

    def pages_of(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def lease(self, pages: int) -> None:
        """Take pages, or give them back where negative."""
        self.leased += pages
        self._most_leased = max(self._most_leased, self.leased)

    def is_of(self, report: Report) -> bool:
        """Whether that is the same pool."""
        made = Pool(report)
        return (made.pages, made.page_size) == (self.pages, self.page_size)

    def told(self, report: Report) -> None:
        """Its use anew; the same report again says nothing."""
        if report.stamp == self._stamp:
            return
        self._stamp = report.stamp
        self.foreign = max(0, self.pages_of(report.used_tokens) - self._most_leased)
        self._most_leased = self.leased
