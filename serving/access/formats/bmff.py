"""Boxes inside boxes: length, kind, body. The frame of AVIF files."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from serving.access.formats.structure import MalformedError

_MOST_BOXES = 1024  # of one parent; a grid of 256 tiles with transparency has about 520 items


@dataclass(frozen=True, slots=True)
class Box:
    """Where a box is. at: its kind's four bytes; body to end: what it holds. Offsets into the file."""

    kind: bytes
    at: int
    body: int
    end: int


def boxes(data: bytes, begin: int, end: int) -> Iterator[Box]:
    """The boxes that lie side by side in data[begin:end].

    Raises MalformedError where one reaches over the end or there are too many.
    """
    for _ in range(_MOST_BOXES):
        if begin == end:
            return
        size, kind = struct.unpack_from(">I4s", data, begin)
        body = begin + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, body)
            body += 8
        elif size == 0:  # the last one of a file may leave its length open
            size = end - begin
        if begin + size > end or begin + size < body:
            raise MalformedError("the AVIF is cut off or has a box that is longer than its parent")
        yield Box(kind, begin + 4, body, begin + size)
        begin += size
    raise MalformedError("the AVIF has too many boxes")


class Fields:
    """Numbers of a box's body, one after the other; reading past its end raises MalformedError."""

    def __init__(self, data: bytes, box: Box) -> None:
        self._data = data
        self._end = box.end
        self.at = box.body

    def number(self, size: int) -> int:
        """The next `size` bytes, big-endian; 0 bytes are 0."""
        begin = self.at
        self.at += size
        if self.at > self._end:
            raise MalformedError("the AVIF has a box that is shorter than its fields")
        return int.from_bytes(self._data[begin : self.at], "big")

    def version(self) -> tuple[int, int]:
        """(version, flags) that a full box begins with."""
        return self.number(1), self.number(3)
