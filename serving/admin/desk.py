"""Where changes are made: one after the other, each written down before it holds."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping

from serving.admin.ledger import Change, Ledger
from serving.admin.record import Record
from serving.admin.settings import Settings, Value
from toolkit.core.clock import Clock
from toolkit.core.errors import InvalidRequest

log = logging.getLogger("toolkit.admin")

RETRY_S = 5.0
"""Wait before the end of a change is tried again that the disk did not take, or that could not be yet."""


class Desk:
    """Owns the ledger and its record. apply: puts settings into force; it must not fail."""

    def __init__(
        self,
        configured: Settings,
        record: Record,
        clock: Clock,
        apply: Callable[[Settings], None],
        up: Callable[[], Collection[str]],
        on_change: Callable[[Change], None] = lambda _: None,
    ) -> None:
        self.ledger = Ledger(configured)
        self._record = record
        self._clock = clock
        self._apply = apply
        self._up = up
        self._on_change = on_change
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._told: set[int] = set()  # changes that hold beyond their time, as logged

    def restore(self) -> None:
        """The changes of an earlier process of this service hold again. Raises EnvironmentFault."""
        changes = self._record.read()
        for change in changes:
            try:
                self.ledger.record(change)
            except InvalidRequest as error:
                log.warning("change %d does not hold any more: %s", change.id, error.message)
        if changes:
            log.info("%d changes of %s hold again", len(changes), self._record.path)
            self._apply(self.ledger.present)

    async def change(
        self, asked: Mapping[str, Value], *, who: str, reason: str, for_s: float | None, force: bool
    ) -> Change | None:
        """Give these keys these values; None where all have them. Raises InvalidRequest, Conflict, NotRecorded."""
        async with self._lock:
            now, up = self._clock.wall(), self._up()
            change = self.ledger.propose(
                asked, who=who, reason=reason, at=now, up=up, for_s=for_s, force=force
            )
            if change is not None:
                await self._make(change)
            return change

    async def undo(self, number: int, *, who: str, reason: str, force: bool) -> Change:
        """Take a change back. Raises NotFound, InvalidRequest, Conflict, NotRecorded."""
        async with self._lock:
            now, up = self._clock.wall(), self._up()
            change = self.ledger.undo(number, who=who, reason=reason, at=now, up=up, force=force)
            await self._make(change)
            return change

    async def expire(self) -> None:
        """End the changes whose time is over. Raises NotRecorded."""
        async with self._lock:
            while (change := self.ledger.expired(self._clock.wall(), self._up())) is not None:
                await self._make(change)
            kept = self.ledger.kept
            for number in kept.keys() - self._told:
                log.warning("change %d holds beyond its time: %s", number, kept[number])
            self._told = set(kept)

    async def run(self) -> None:
        """End changes when their time is over, until cancelled."""
        while True:
            self._changed.clear()
            wait_s: float | None = None
            try:
                await self.expire()
                wait_s = self._wait_s()
            except Exception:
                log.exception("a change could not be ended; tried again in %.0f s", RETRY_S)
                wait_s = RETRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    def _wait_s(self) -> float | None:
        """Until the next change is to end; until those are tried again that hold beyond their time."""
        ending, kept = self.ledger.ending, self.ledger.kept
        waits = [max(0.0, (one.until or 0.0) - self._clock.wall()) for one in ending if one.id not in kept]
        return min(waits + [RETRY_S] * bool(kept), default=None)

    async def _make(self, change: Change) -> None:
        await asyncio.to_thread(self._record.append, change.to_dict())
        self.ledger.record(change)
        self._apply(self.ledger.present)
        self._changed.set()
        self._on_change(change)
        log.info("change %d by %s (%s): %s", change.id, change.who, change.kind, dict(change.after))
