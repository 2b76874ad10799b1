"""The byte structure of the four formats, walked before any decoder sees a file. Pure; touches no pixel.

A walk answers three things. What the file claims: format, size, orientation. Whether it is built to waste time:
thousands of scans, millions of empty chunks. And its essence: the parts that a decoder needs for the first
picture. Only the essence is decoded, so metadata (text, colour profiles, Exif, further frames, trailers) can
neither stall nor inflate a decoder, and never travels on.
"""

import struct
from collections.abc import Callable

from serving.access.formats import gif, jpeg, png, webp
from serving.access.formats.structure import MalformedError, Structure

__all__ = ["MalformedError", "Structure", "walk"]

_WALKERS: tuple[tuple[bytes, Callable[[bytes], Structure]], ...] = (
    (b"\xff\xd8\xff", jpeg.walk),
    (b"\x89PNG\r\n\x1a\n", png.walk),
    (b"RIFF", webp.walk),
    (b"GIF87a", gif.walk),
    (b"GIF89a", gif.walk),
)


def walk(data: bytes) -> Structure:
    """Raises MalformedError for anything that is not JPEG, PNG, WebP or GIF, by content alone."""
    for magic, walker in _WALKERS:
        if data.startswith(magic):
            try:
                return walker(data)
            except (struct.error, IndexError) as error:
                raise MalformedError("the file ends inside its header") from error
    raise MalformedError("the bytes are not JPEG, PNG, WebP or GIF")
