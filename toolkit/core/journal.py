"""An append-only, rotating JSONL file, written by a thread so that no event loop waits for a disk.

A full or failing disk loses records, never requests: what could not be written is counted, and each new failure is
told once through `on_fault`.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

_STOP = object()


class Journal:
    """Writer of `name.jsonl` in a folder; older files are `name.1.jsonl` (newest) up to `keep_files - 1`."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        max_file_bytes: int,
        keep_files: int,
        max_queued: int = 10_000,
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._name = name
        self._max_file_bytes = max_file_bytes
        self._keep_files = keep_files
        self._on_fault = on_fault
        self._queue: queue.Queue[Any] = queue.Queue(max_queued)
        self._lock = threading.Lock()
        self._dropped = 0
        self._faulty = False
        folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._write_all, name=f"journal-{name}", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        return self._folder / f"{self._name}.jsonl"

    @property
    def dropped(self) -> int:
        """Records that were lost so far."""
        with self._lock:
            return self._dropped

    def append(self, record: dict[str, Any]) -> None:
        """Queue one record; never blocks and never raises for a disk."""
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._lose(1, "the journal's queue is full")

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is queued, then stop. Idempotent."""
        if self._thread.is_alive():
            self._queue.put(_STOP)
            self._thread.join(timeout_s)

    def _lose(self, count: int, why: str) -> None:
        with self._lock:
            self._dropped += count
            first, self._faulty = not self._faulty, True
        if first:
            self._on_fault(f"{self.path}: {count} record(s) lost: {why}")

    def _write_all(self) -> None:
        stopping = False
        while not stopping:
            batch = [self._queue.get()]
            while len(batch) < 1000:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            if batch[-1] is _STOP or _STOP in batch:
                stopping = True
                batch = [record for record in batch if record is not _STOP]
            if batch:
                self._write(batch)

    def _write(self, batch: list[dict[str, Any]]) -> None:
        try:
            data = b"".join(
                orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
                for record in batch
            )
            self._turn_over(len(data))
            with self.path.open("ab", buffering=0) as file:  # a buffer would be flushed again by truncate
                start = file.tell()
                try:
                    left = memoryview(data)
                    while left:
                        left = left[file.write(left) or 0 :]
                except OSError:
                    with contextlib.suppress(OSError):  # a device cannot be cut
                        file.truncate(start)  # no half line stays behind
                    raise
        except (OSError, TypeError) as error:
            self._lose(len(batch), str(error))
            return
        with self._lock:
            self._faulty = False

    def _turn_over(self, incoming: int) -> None:
        if not self.path.exists() or self.path.stat().st_size + incoming <= self._max_file_bytes:
            return
        older = [self._folder / f"{self._name}.{n}.jsonl" for n in range(1, self._keep_files)]
        if not older:
            self.path.unlink()
            return
        for source, target in reversed(list(zip([self.path, *older], older, strict=False))):
            if source.exists():
                source.replace(target)


def files(folder: Path, name: str) -> list[Path]:
    """The journal's files, newest first."""
    numbered = sorted(
        folder.glob(f"{name}.*.jsonl"),
        key=lambda path: int(path.suffixes[0][1:]) if path.suffixes[0][1:].isdigit() else 1 << 30,
    )
    newest = folder / f"{name}.jsonl"
    return ([newest] if newest.exists() else []) + numbered


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Records in writing order; a line that is not whole (a crash in mid-write) is left out."""
    with path.open("rb") as file:
        for line in file:
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(record, dict):
                yield record
