"""What a walk over a file's bytes finds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Literal, cast

from serving.access.formats.joined import Joined

Format = Literal["JPEG", "PNG", "WEBP", "GIF", "AVIF"]
Variant = Literal["", "lossless", "animated"]


class MalformedError(ValueError):
    """The bytes are not a complete picture of a format we take; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What a file claims, and the parts of it that matter.

    width, height: pixels as stored. orientation: Exif 1 to 8. progressive: a JPEG whose coefficients are held
    whole while decoding. scans: SOS markers of a JPEG; blocks: 8x8 blocks of all its components. parts: slices that
    joined are the essence. variant: what makes a WebP costly.
    """

    format: Format
    width: int
    height: int
    orientation: int = 1
    progressive: bool = False
    scans: int = 0
    blocks: int = 0
    parts: Sequence[memoryview | bytes] = field(default=(), repr=False, compare=False)
    variant: Variant = ""

    def essence(self) -> bytes:
        """A smaller file with the same first picture."""
        return b"".join(self.parts)

    def file(self) -> IO[bytes]:
        """The essence, without a copy of it."""
        return cast("IO[bytes]", Joined(self.parts))


def most_blocks(data: bytes, usual_bytes: int) -> int:
    """Blocks that an honest file of this size stays under, where encoders write `usual_bytes` or more into one."""
    return 4096 + 2 * len(data) // usual_bytes
