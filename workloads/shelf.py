"""Where prepared bytes lie until they are sent: in memory up to a limit, beyond it in a file without a name.

A long run's bodies are more than a process should hold: the soak profile's are 0.7 GB, at four times its rate 2.9 GB.
What lies in the file is read through a map: the system may take its pages when memory is short and fetch them again, and
a body is a view of them that nobody copies before it is on the wire. Fetching again costs the moment of the send; the
run's slip shows it.
"""

import mmap
import os
import tempfile
from pathlib import Path

from toolkit.core.errors import UsageFault

MAX_BODY_BYTES = 8_000_000_000  # of one run, in memory or not, unless its profile says otherwise
HELD_BYTES = 256 << 20
SEGMENT_BYTES = 64 << 20
SMALL_BYTES = 64 << 10  # stays in memory in any case: it weighs little, and a view weighs something too
FOLDER = "/var/tmp"  # noqa: S108 - /tmp may itself be memory; the file has no name, so nobody can meet it


class Shelf:
    """Takes bytes, gives them back as bytes or as a view that lives as long as it is held. Not for several threads."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        """held_bytes: most that stays in memory, small pieces aside."""
        self._room = held_bytes
        self._file = -1
        self._size = 0
        self._segment = memoryview(b"")

    @property
    def filed_bytes(self) -> int:
        """Size of the file; 0 while all is held in memory."""
        return self._size

    def put(self, data: bytes) -> bytes | memoryview:
        """The same bytes, wherever they lie now. Raises UsageFault when the disk is full."""
        if len(data) < SMALL_BYTES:
            return data
        if len(data) <= self._room:
            self._room -= len(data)
            return data
        self._room = 0  # what comes early is held, what comes late is filed
        if len(data) > len(self._segment):
            self._segment = self._more(len(data))
        kept, self._segment = self._segment[: len(data)], self._segment[len(data) :]
        kept[:] = data
        return kept.toreadonly()

    def close(self) -> None:
        """Nothing more is put; what was stays readable, and the file goes with the last view."""
        self._segment = memoryview(b"")
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _more(self, least_bytes: int) -> memoryview:
        size = -(-max(least_bytes, SEGMENT_BYTES) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        folder = os.environ.get("TMPDIR") or FOLDER
        try:
            if self._file < 0:
                self._file, name = tempfile.mkstemp(prefix="toolkit-bodies-", dir=folder)
                Path(name).unlink()
            # Room is taken before it is written: a map that cannot be written ends the process.
            os.posix_fallocate(self._file, self._size, size)
            segment = memoryview(mmap.mmap(self._file, size, offset=self._size))
        except OSError as error:
            raise UsageFault(
                f"{folder}: no room for request bodies ({error.strerror}): name another folder with TMPDIR, "
                "or ask for a lower rate or duration."
            ) from error
        self._size += size
        return segment
