"""Retention: objects of ours that are older than allowed are deleted, at a bounded pace. Several gateways doing it do no harm."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable

from serving.storage.entries import Kind, kind_of
from serving.storage.remote import Remote, StoreFault

DAY_S = 86_400.0
FIRST_S, EVERY_S = 60.0, 6 * 3600.0
PAUSE_S = 0.2
"""Between two pages of up to 1,000 objects: some ten requests a second at most."""


def expired(page: Iterable[tuple[str, float]], before: float) -> list[tuple[str, Kind]]:
    """Our own objects that were written before that instant (Unix seconds); what others put there is never touched."""
    return [
        (key, kind) for key, written_at in page if written_at < before and (kind := kind_of(key)) is not None
    ]


def sweep(remote: Remote, before: float, go_on: Callable[[], bool]) -> Counter[Kind]:
    """Delete all that was written before that instant; `go_on` paces it, and ends it by False. How many, by kind.

    Blocking. Raises StoreFault; what was deleted until then stays deleted.
    """
    deleted: Counter[Kind] = Counter()
    for page in remote.pages():
        old = expired(page, before)
        if old:
            remote.delete([key for key, _ in old])
            deleted.update(kind for _, kind in old)
        if not go_on():
            break
    return deleted


class Sweeper:
    """Sweeps from time to time on a thread of its own. `wall` gives Unix seconds; `told` is called on that thread."""

    def __init__(
        self,
        remote: Remote,
        retention_days: float,
        wall: Callable[[], float],
        told: Callable[[Counter[Kind] | StoreFault], None],
    ) -> None:
        self._remote = remote
        self._retention_s = retention_days * DAY_S
        self._wall = wall
        self._told = told
        self._stop = threading.Event()

    def start(self, first_s: float = FIRST_S) -> None:
        threading.Thread(target=self._run, args=(first_s,), name="storage-sweep", daemon=True).start()

    def stop(self) -> None:
        """Returns at once; a page under way is finished. Idempotent."""
        self._stop.set()

    def _run(self, wait_s: float) -> None:
        while not self._stop.wait(wait_s):
            try:
                self._told(
                    sweep(
                        self._remote,
                        self._wall() - self._retention_s,
                        lambda: not self._stop.wait(PAUSE_S),
                    )
                )
            except StoreFault as fault:
                self._told(fault)
            wait_s = EVERY_S
