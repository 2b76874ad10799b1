"""Writes that nobody waits for: in turn, one at a time, bounded by the bytes that wait."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from serving.access.picture import Prepared


class Writer:
    """Hands images to `write`, which says what became of each; `written` is told that, or "dropped" for what comes
    beyond `most_bytes`, counted as the strings that travel.

    Runs a task only while there is something to write.
    """

    def __init__(
        self,
        write: Callable[[bytes, Prepared], Awaitable[str]],
        written: Callable[[str], None],
        most_bytes: int,
    ) -> None:
        self._write = write
        self._written = written
        self._most_bytes = most_bytes
        self._waiting: deque[tuple[bytes, Prepared]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.queued_bytes = 0

    def offer(self, key: bytes, prepared: Prepared) -> None:
        """Takes the image, or drops it where too much waits already."""
        size = len(prepared.data_uri)
        if self._closed or self.queued_bytes + size > self._most_bytes:
            self._written("dropped")
            return
        self._waiting.append((key, prepared))
        self.queued_bytes += size
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, within_s: float) -> None:
        """Waits until all is written, or for `within_s`; drops the rest. Idempotent."""
        self._closed = True
        if self._task is not None:
            task = self._task
            await asyncio.wait([task], timeout=within_s)
            task.cancel()
            await asyncio.wait([task])
        for _ in range(len(self._waiting)):
            self._waiting.popleft()
            self._written("dropped")
        self.queued_bytes = 0

    async def _run(self) -> None:
        try:
            while self._waiting:
                key, prepared = self._waiting.popleft()
                result = "dropped"
                try:
                    result = await self._write(key, prepared)
                finally:
                    self.queued_bytes -= len(prepared.data_uri)
                    self._written(result)
        finally:
            self._task = None
