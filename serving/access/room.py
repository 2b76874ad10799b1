"""Room in memory, waited for: what is read from a socket waits there until there is room for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from serving.access.share import Share
from toolkit.core.errors import TooLarge


class Held:
    """One holder's room. Grows by waiting, shrinks at once; given back by whoever lent it."""

    def __init__(self, room: "Room", free_bytes: int) -> None:
        self._room = room
        self._free_bytes = free_bytes
        self.waiting = False

    @property
    def bytes(self) -> int:
        """What is held, besides the bytes that are free."""
        return self._room.share.of(self)

    async def reach(self, size_bytes: int) -> None:
        """Waits until `size_bytes` in all may be in memory.

        Raises TooLarge(body_too_large) where there is less room in all.
        """
        if size_bytes <= max(self.bytes, self._free_bytes):
            return
        share = self._room.share
        if size_bytes > share.size_bytes:
            raise TooLarge(
                f"It takes {size_bytes} bytes of memory; all requests together have {share.size_bytes}"
                " (access.memory_mb)."
            )
        self.waiting = True
        await self._room.wait(self, size_bytes)
        self.waiting = False

    def keep(self, size_bytes: int) -> None:
        """Gives back what is above `size_bytes`."""
        self._room.go_on(self._room.share.keep(self, 0 if size_bytes <= self._free_bytes else size_bytes))


class Room:
    """A Share whose holders are tasks of one event loop."""

    def __init__(
        self, size_bytes: int, reserve_bytes: int = 0, small_bytes: int = 0, small_part_bytes: int = 0
    ) -> None:
        self.share: Share[Held] = Share(size_bytes, reserve_bytes, small_bytes, small_part_bytes)
        self._turns: dict[Held, asyncio.Future[None]] = {}

    @contextlib.asynccontextmanager
    async def hold(self, free_bytes: int = 0) -> AsyncIterator[Held]:
        """A holder, whose room is given back on the way out. Its first `free_bytes` are not counted."""
        held = Held(self, free_bytes)
        try:
            yield held
        finally:
            self.leave(held)

    def leave(self, held: Held) -> None:
        """Everything back, for a holder that no `hold` made. Idempotent."""
        self._turns.pop(held, None)
        self.go_on(self.share.leave(held))

    async def wait(self, held: Held, wanted: int) -> None:
        """Until the holder has `wanted` bytes."""
        turn = self._turns[held] = asyncio.get_running_loop().create_future()
        self.go_on(self.share.ask(held, wanted))
        await turn

    def go_on(self, granted: list[Held]) -> None:
        """Wakes those who were granted what they wait for."""
        for held in granted:
            turn = self._turns.pop(held, None)
            if turn is not None and not turn.done():
                turn.set_result(None)
