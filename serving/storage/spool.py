"""The spool: a folder of entries that are not in the store yet. An entry is whole under its name, or not there.

ROOT/STORE/SLOT/: one folder per store, so that entries never reach another store than they were meant for; in it one slot
per gateway that runs on this machine, held by a lock that goes with the process. What is left in slots that nobody holds is
taken over by any gateway with the same store, at its start and from time to time: so what a killed one had accepted is uploaded.
Files are not flushed to the platter: an entry outlives the gateway's kill -9, not the machine's loss of power.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from serving.storage.entries import Entry, entry
from toolkit.core.errors import EnvironmentFault

SLOTS = 64
PARTIAL = ".part"
LOCK = "lock"


class Spool:
    """One gateway's slot. Blocking: everything but `take` is for a thread."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    @classmethod
    def take(cls, root: Path, store: str) -> "Spool":
        """The first free slot for this store (what names it: URL and endpoint). Raises EnvironmentFault."""
        home = root / hashlib.sha256(store.encode()).hexdigest()[:16]
        try:
            for number in range(SLOTS):
                folder = home / str(number)
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = _locked(folder)
                if lock is not None:
                    for partial in folder.glob(f"*{PARTIAL}"):
                        partial.unlink()
                    return cls(folder, lock)
        except OSError as error:
            raise EnvironmentFault(
                f"{home}: no spool can be made there ({error.strerror}). Name another folder in storage.spool_dir."
            ) from error
        raise EnvironmentFault(f"{home}: {SLOTS} gateways spool there already.")

    def write(self, name: str, data: bytes) -> None:
        """Raises OSError, leaving nothing behind."""
        partial = self.folder / (name + PARTIAL)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have tidied up
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123
                file.write(data)
            partial.rename(self.folder / name)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise

    def path(self, name: str) -> Path:
        return self.folder / name

    def remove(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def left(self) -> list[tuple[Entry, float]]:
        """What is in this slot, oldest first, each with its Unix time. Raises OSError."""
        return sorted(_entries(self.folder), key=lambda found: found[1])

    def adopt(self) -> list[tuple[Entry, float]]:
        """Take over what is in slots that nobody holds any more; the same list of it. Raises OSError."""
        taken: list[tuple[Entry, float]] = []
        for folder in self.folder.parent.iterdir():
            lock = _locked(folder) if folder != self.folder and folder.is_dir() else None
            if lock is None:
                continue
            try:
                for found, since in _entries(folder):
                    (folder / found.name).rename(self.folder / found.name)
                    taken.append((found, since))
            finally:
                os.close(lock)
        return sorted(taken, key=lambda found: found[1])

    def close(self) -> None:
        """Let go of the slot; what is in it stays. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(folder: Path) -> int | None:
    """The lock of a slot, to be closed; None where another process holds it."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _entries(folder: Path) -> Iterator[tuple[Entry, float]]:
    with os.scandir(folder) as files:
        for file in files:
            stat = file.stat()
            found = entry(file.name, stat.st_size)
            if found is not None:
                yield found, stat.st_mtime
