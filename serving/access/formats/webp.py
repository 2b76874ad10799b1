"""WebP: a RIFF file whose first chunk says the size, in one of three ways."""

import struct

from serving.access.formats.exif import orientation_of
from serving.access.formats.structure import MalformedError, Structure, Variant, most_blocks

_ANIMATION = 2  # of the flags in VP8X


def walk(data: bytes) -> Structure:
    """Raises MalformedError, struct.error or IndexError for a file that no decoder should see."""
    if data[8:12] != b"WEBP":
        raise MalformedError("the RIFF file is not WebP")
    (riff,) = struct.unpack_from("<I", data, 4)
    end = riff + 8
    width, height = _size(data[12:16], data, 20)
    if end > len(data):
        # The size comes first: a header that claims too many pixels is refused for that.
        return Structure("WEBP", width, height, parts=[memoryview(data)])
    animated = data[12:16] == b"VP8X" and data[20] & _ANIMATION
    variant: Variant = "animated" if animated else ""
    orientation, position = 1, 12
    for _ in range(most_blocks(data, usual_bytes=1024)):
        if position + 8 > end:
            parts = [memoryview(data)[:end]]
            return Structure("WEBP", width, height, orientation, variant=variant, parts=parts)
        (length,) = struct.unpack_from("<I", data, position + 4)
        body = position + 8
        if body + length > end:
            raise MalformedError("the WebP is cut off")
        kind = data[position : position + 4]
        if kind == b"VP8L" and not animated:
            variant = "lossless"
        elif kind == b"EXIF":
            orientation = orientation_of(data[body : body + length].removeprefix(b"Exif\0\0"))
        position = body + length + (length & 1)
    raise MalformedError("the WebP has too many chunks")


def _size(kind: bytes, data: bytes, body: int) -> tuple[int, int]:
    if kind == b"VP8X":
        low, high = struct.unpack_from("<IH", data, body + 4)
        canvas = low | high << 32
        return (canvas & 0xFFFFFF) + 1, (canvas >> 24 & 0xFFFFFF) + 1
    if kind == b"VP8L":
        (packed,) = struct.unpack_from("<I", data, body + 1)
        return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, body + 6)
        return width & 0x3FFF, height & 0x3FFF
    raise MalformedError("the WebP does not begin with a picture")
