"""The scans of a JPEG: how many, where the last one ends, and whether together they hold the whole picture.

A decoder that meets the end marker early makes up the rest (grey, or a blur where later scans are missing) and
reports success. So a single scan's end marker is left out, which makes the decoder ask for more bytes where the
scan is short; of several scans each header says which coefficients it brings, and all must have come. What is left:
a progressive file cut inside its very last scan, the last bit of the finest coefficients, is less sharp from there.
"""

import re
import struct
from dataclasses import dataclass

from serving.access.formats.structure import MalformedError

END = b"\xff\xd9"
STRICT_END = b"\xff\x00" * 16
"""In place of the end marker: what a decoder may read ahead (eight bytes), and no more.

All ones is no code word, so whatever of the picture is missing takes over 16 bits a symbol out of these 128: a file
that lacks more than a few blocks of 8x8 pixels runs dry, an error; a complete one never uses them.
"""

_WINDOW = 1 << 18  # bytes, searched in half a millisecond

_EOI, _SOS = 0xD9, 0xDA
_MOST_SCAN_MARKERS = 8192  # each scan brings about five

# In entropy-coded data FF 00 is a stuffed byte, FF FF is fill and D0 to D7 are restart marks.
_SCAN_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scans:
    """count: how many headers; end: where the end marker of the last one is."""

    count: int
    end: int


def scans_from(data: bytes, position: int, components: bytes, progressive: bool) -> Scans:
    """The scans from the first one's length field on; `components` are the frame's identifiers.

    Raises MalformedError, struct.error or IndexError where the end marker or a part of the picture is missing.
    """
    missing = {(part, band) for part in components for band in range(64 if progressive else 1)}
    count, marker = 0, _SOS
    for _ in range(_MOST_SCAN_MARKERS):
        if marker == _EOI:
            if missing:
                raise MalformedError("the JPEG lacks scans")
            return Scans(count, position - 2)
        if marker == _SOS:
            count += 1
            if missing:
                missing -= _finished(data, position, progressive)
        (length,) = struct.unpack_from(">H", data, position)
        position = _behind_marker(data, position + length)
        marker = data[position - 1]
    raise MalformedError("the JPEG has too many markers in its scans")


def _behind_marker(data: bytes, position: int) -> int:
    """Where the next marker ends. In windows, since one search holds the interpreter lock to its end."""
    while position < len(data) - 1:
        match = _SCAN_MARKER.search(data, position, position + _WINDOW + 1)
        if match is not None:
            return match.end()
        position += _WINDOW
    raise MalformedError("the JPEG is cut off")


def _finished(data: bytes, position: int, progressive: bool) -> set[tuple[int, int]]:
    """(component, coefficient) of all that the scan at `position` brings down to its last bit."""
    count = data[position + 2]
    parts = data[position + 3 : position + 3 + 2 * count : 2]
    if not progressive:
        return {(part, 0) for part in parts}
    band = position + 3 + 2 * count
    first, last, bits = data[band], data[band + 1], data[band + 2]
    if bits & 15:
        return set()
    return {(part, place) for part in parts for place in range(first, min(last, 63) + 1)}
