"""GIF: a canvas, extensions, and frames in sub-blocks of at most 255 bytes; only the first frame matters."""

import struct

from serving.access.formats.structure import MalformedError, Structure, most_blocks

_EXTENSION, _FRAME, _TRAILER = 0x21, 0x2C, b"\x3b"
_GRAPHIC_CONTROL = 0xF9  # transparency of the frame that follows


def walk(data: bytes) -> Structure:
    """Raises MalformedError, struct.error or IndexError for a file that no decoder should see."""
    view = memoryview(data)
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    position = 13 + _colour_bytes(flags)
    parts: list[memoryview | bytes] = [view[:position]]
    budget = most_blocks(data, usual_bytes=255)
    while data[position] == _EXTENSION:
        end, budget = _after_blocks(data, position + 2, budget)
        if data[position + 1] == _GRAPHIC_CONTROL:
            parts.append(view[position:end])
        position = end
    if data[position] != _FRAME:
        raise MalformedError("the GIF has no picture")
    left, top, wide, high, flags = struct.unpack_from("<HHHHB", data, position + 1)
    end, _ = _after_blocks(data, position + 10 + _colour_bytes(flags) + 1, budget)
    parts += [view[position:end], _TRAILER]
    # A frame that reaches over the canvas makes the decoder's canvas grow.
    return Structure("GIF", max(width, left + wide), max(height, top + high), parts=parts)


def _colour_bytes(flags: int) -> int:
    """Bytes of the colour table that the flags announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(data: bytes, position: int, budget: int) -> tuple[int, int]:
    """Where the sub-blocks from `position` end, and how many more blocks may follow."""
    while budget > 0:
        length = data[position]
        position += 1 + length
        budget -= 1
        if length == 0:
            return position, budget
    raise MalformedError("the GIF has too many blocks")
