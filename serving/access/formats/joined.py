"""Several slices of bytes, read as one file: a picture's parts need not be copied to be decoded."""

import io
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


class Joined(io.RawIOBase):
    """Reads and seeks; `read` copies only what it returns."""

    def __init__(self, parts: Sequence[memoryview | bytes]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._starts = [0, *accumulate(len(part) for part in self._parts)]
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Raises ValueError for a place before the first byte."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._starts[-1]}[whence]
        if base + offset < 0:
            raise ValueError(f"no byte at {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """As many bytes as asked for, unless the file ends; all that are left for a negative size."""
        left = max(0, self._starts[-1] - self._at)
        size = left if size is None or size < 0 else min(size, left)
        found = []
        number = bisect_right(self._starts, self._at) - 1
        while size:
            begin = self._at - self._starts[number]
            piece = self._parts[number][begin : begin + size]
            found.append(piece)
            self._at += len(piece)
            size -= len(piece)
            number += 1
        return bytes(found[0]) if len(found) == 1 else b"".join(found)
