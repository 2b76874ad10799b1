"""PNG: length, kind, body, checksum; again and again."""

import struct

from serving.access.formats.exif import orientation_of
from serving.access.formats.structure import MalformedError, Structure, most_blocks

_NEEDED = frozenset([b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"])
_PALETTE = 3  # the header's colour type


def walk(data: bytes) -> Structure:
    """Raises MalformedError, struct.error or IndexError for a file that no decoder should see."""
    view = memoryview(data)
    parts: list[memoryview | bytes] = [view[:8]]
    if data[12:16] != b"IHDR":
        raise MalformedError("the PNG does not begin with its header")
    width, height = struct.unpack_from(">II", data, 16)
    orientation, position = 1, 8
    lacks_palette = data[25] == _PALETTE
    for _ in range(most_blocks(data, usual_bytes=1024)):
        (length,) = struct.unpack_from(">I", data, position)
        kind, end = data[position + 4 : position + 8], position + 12 + length
        if end > len(data):
            raise MalformedError("the PNG is cut off")
        if kind == b"PLTE":
            lacks_palette = False
        elif kind == b"IDAT" and lacks_palette:
            raise MalformedError("the PNG lacks its palette")
        if kind in _NEEDED:
            parts.append(view[position:end])
        elif kind == b"eXIf":
            orientation = orientation_of(data[position + 8 : end - 4])
        elif kind[:1].isupper():
            raise MalformedError(f"the PNG needs an unknown chunk {kind!r}")
        if kind == b"IEND":
            return Structure("PNG", width, height, orientation, parts=parts)
        position = end
    raise MalformedError("the PNG has too many chunks")
