"""The byte structure of the five formats, walked before any decoder sees a file. Pure; touches no pixel.

A walk answers three things. What the file claims: format, size, orientation. Whether it is built to waste time:
thousands of scans, millions of empty chunks. And its essence: the parts that a decoder needs for the first
picture. Only the essence is decoded, so metadata (text, colour profiles, Exif, further frames, trailers) can
neither stall nor inflate a decoder, and never travels on.
"""

import struct
from collections.abc import Callable

from serving.access.formats import avif, gif, jpeg, png, webp
from serving.access.formats.structure import Format, MalformedError, Structure, Variant

__all__ = ["Format", "MalformedError", "Structure", "Variant", "walk"]

_WALKERS: tuple[tuple[int, bytes, Callable[[bytes], Structure]], ...] = (
    (0, b"\xff\xd8\xff", jpeg.walk),
    (0, b"\x89PNG\r\n\x1a\n", png.walk),
    (0, b"RIFF", webp.walk),
    (0, b"GIF87a", gif.walk),
    (0, b"GIF89a", gif.walk),
    (4, b"ftyp", avif.walk),
)
"""Offset, magic, walker."""


def walk(data: bytes) -> Structure:
    """Raises MalformedError for anything that is not JPEG, PNG, WebP, GIF or AVIF, by content alone."""
    for offset, magic, walker in _WALKERS:
        if data.startswith(magic, offset):
            try:
                return walker(data)
            except (struct.error, IndexError) as error:
                raise MalformedError("the file ends inside its header") from error
    raise MalformedError("the bytes are not JPEG, PNG, WebP, GIF or AVIF")
