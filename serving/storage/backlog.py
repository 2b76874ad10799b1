"""What waits for the store, and what may go next: bounded, first in first out, held back while the store fails. Sans-I/O.

    offer -> being written -> spooled -> uploading -> done
                                 ^            |
                                 +-- failed --+      (to the back of the queue: one bad entry stops nobody)

After a failure nothing starts for a while (exponential, with jitter, at most LONGEST_S), then one entry alone tries;
once one has succeeded all go again.
"""

import random
from collections import OrderedDict, deque
from typing import Literal

from serving.storage.entries import Entry

FIRST_S, LONGEST_S = 0.5, 30.0
"""Least and largest wait after a failure, before jitter (half to whole)."""

MEMORY_BYTES = 32_000_000
"""Bound on what waits in memory for the disk, and on what is being uploaded at once; one entry alone may be larger."""

MAX_ENTRIES = 100_000
LATELY_S, LATELY_ENTRIES = 3600.0, 20_000
"""How long, and of how many, it is remembered that they were uploaded: an image that comes again is not stored again."""

Answer = Literal["taken", "known", "spool_full", "disk_behind"]


class Backlog:
    """Mutable state of one spool. `now` is monotonic; `since` and `wall` are Unix seconds."""

    def __init__(self, max_bytes: int, concurrency: int, source: random.Random) -> None:
        self._max_bytes = max_bytes
        self._concurrency = concurrency
        self._random = source
        self._writing: dict[str, int] = {}
        self._writing_bytes = 0
        self._spooled: dict[str, tuple[Entry, float]] = {}  # oldest first; holds what is being uploaded too
        self._queue: deque[str] = deque()
        self._uploading: dict[str, int] = {}
        self._lately: OrderedDict[str, float] = OrderedDict()
        self._spooled_bytes = self._uploading_bytes = 0
        self._failures = 0  # in a row
        self._opens_at = 0.0

    @property
    def bytes(self) -> int:
        """Of all that is accepted and not yet in the store."""
        return self._spooled_bytes + self._writing_bytes

    @property
    def entries(self) -> int:
        return len(self._spooled) + len(self._writing)

    @property
    def uploading(self) -> int:
        return len(self._uploading)

    def oldest_s(self, wall: float) -> float:
        """Age of the oldest spooled entry; 0 where there is none."""
        for _, since in self._spooled.values():
            return max(0.0, wall - since)
        return 0.0

    def offer(self, name: str, size: int, now: float) -> Answer:
        """taken: write it, then tell `written` or `unwritten`. All else: leave it."""
        if name in self._spooled or name in self._writing or self._stored_lately(name, now):
            return "known"
        if self.bytes + size > self._max_bytes or self.entries >= MAX_ENTRIES:
            return "spool_full"
        if self._writing and self._writing_bytes + size > MEMORY_BYTES:
            return "disk_behind"
        self._writing[name] = size
        self._writing_bytes += size
        return "taken"

    def written(self, entry: Entry, since: float) -> None:
        """It is whole on the disk (written just now, or found there)."""
        self.unwritten(entry.name)
        if entry.name not in self._spooled:
            self._spooled[entry.name] = (entry, since)
            self._spooled_bytes += entry.size
            self._queue.append(entry.name)

    def unwritten(self, name: str) -> None:
        """The disk did not take it."""
        self._writing_bytes -= self._writing.pop(name, 0)

    def next(self, now: float) -> Entry | None:
        """The entry to upload now, which then ends in `done` or `failed`; None: nothing may start yet."""
        if not self._queue or now < self._opens_at or len(self._uploading) >= self._concurrency:
            return None
        if self._failures and self._uploading:
            return None
        entry, _ = self._spooled[self._queue[0]]
        if self._uploading and self._uploading_bytes + entry.size > MEMORY_BYTES:
            return None
        self._queue.popleft()
        self._uploading[entry.name] = entry.size
        self._uploading_bytes += entry.size
        return entry

    def wait_s(self, now: float) -> float | None:
        """How long until `next` is worth asking again; None: not before something happens."""
        return self._opens_at - now if self._queue and now < self._opens_at else None

    def hurry(self) -> None:
        """Try again at once, whatever failed before."""
        self._opens_at = 0.0

    def done(self, entry: Entry, now: float) -> None:
        """It is in the store, or need not be any more."""
        self._failures, self._opens_at = 0, 0.0
        self._ended(entry)
        del self._spooled[entry.name]
        self._spooled_bytes -= entry.size
        if entry.kind == "image":
            self._lately[entry.name] = now
            if len(self._lately) > LATELY_ENTRIES:
                self._lately.popitem(last=False)

    def failed(self, entry: Entry, now: float) -> None:
        self._ended(entry)
        self._queue.append(entry.name)
        if now < self._opens_at:
            return  # it had begun before: the same outage
        wait_s = min(LONGEST_S, FIRST_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        self._opens_at = now + wait_s * self._random.uniform(0.5, 1.0)

    def _ended(self, entry: Entry) -> None:
        self._uploading_bytes -= self._uploading.pop(entry.name)

    def _stored_lately(self, name: str, now: float) -> bool:
        at = self._lately.get(name)
        return at is not None and now - at < LATELY_S
