"""JPEG: marker segments up to the first scan; what follows is jpeg_scans' matter."""

import struct

from serving.access.formats.exif import orientation_of
from serving.access.formats.jpeg_scans import END, STRICT_END, scans_from
from serving.access.formats.structure import MalformedError, Structure

_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = 0xC2
_LEAST_BITS = {0xC0: 2, 0xC1: 2, _PROGRESSIVE: 1}
"""Frames that are taken: the Huffman-coded ones, all that cameras write and browsers show; least bits per block."""
_STANDALONE = frozenset([0x00, 0x01, *range(0xD0, 0xD8)])
_EOI, _SOS, _APP1, _COM = 0xD9, 0xDA, 0xE1, 0xFE
# Application data and comments that change no pixel. JFIF (E0) and Adobe (EE) stay: they name the colour transform.
_LEFT_OUT = frozenset([*range(0xE1, 0xEE), 0xEF, _COM])

_MOST_SEGMENTS = 1024  # before the first scan; colour profiles and maker notes reach about 300
_MOST_PADDING = 65_536  # bytes of fill or junk between segments


def walk(data: bytes) -> Structure:
    """Raises MalformedError, struct.error or IndexError for a file that no decoder should see."""
    view = memoryview(data)
    parts: list[memoryview | bytes] = [view[:2]]
    frame: tuple[int, int, int] | None = None
    components, blocks, orientation, padding, position = b"", 0, 1, 0, 2
    for _ in range(_MOST_SEGMENTS):
        at = _marker_after(data, position, padding)
        padding += at - 1 - position
        marker, position = data[at], at + 1
        if marker in _STANDALONE:
            continue
        if marker == _EOI:
            break
        (length,) = struct.unpack_from(">H", data, position)
        end = position + length
        if length < 2 or end > len(data):
            raise MalformedError("a JPEG segment is longer than the file")
        if marker == _SOS:
            if frame is None:
                raise MalformedError("the JPEG has a scan before its frame header")
            sof, width, height = frame
            progressive = sof == _PROGRESSIVE
            scans = scans_from(data, position, components, progressive)
            _check_scan_bytes(scans.end - end, blocks, sof)
            parts += [view[at - 1 : scans.end], STRICT_END if scans.count == 1 else END]
            return Structure("JPEG", width, height, orientation, progressive, scans.count, blocks, parts)
        if marker in _SOF:
            if frame is not None:
                raise MalformedError("the JPEG has two frame headers")
            if marker not in _LEAST_BITS:
                raise MalformedError("the JPEG is neither baseline nor progressive with Huffman codes")
            height, width = struct.unpack_from(">HH", data, position + 3)
            components = data[position + 8 : end : 3]
            frame = (marker, width, height)
            blocks = _blocks(data[position + 7 : end], width, height)
        elif marker == _APP1 and orientation == 1 and data[position + 2 : position + 8] == b"Exif\0\0":
            orientation = orientation_of(data[position + 8 : end])
        if marker not in _LEFT_OUT:
            parts.append(view[at - 1 : end])
        position = end
    raise MalformedError("the JPEG has no scan after its header")


def _marker_after(data: bytes, position: int, padding: int) -> int:
    """Where the next marker's second byte is; fill bytes and a little junk are stepped over."""
    room = position + _MOST_PADDING - padding
    at = data.find(b"\xff", position, room) + 1
    while 0 < at <= room and data[at] == 0xFF:
        at += 1
    if not 0 < at <= room:
        raise MalformedError("the JPEG has no marker where one belongs")
    return at


def _blocks(frame: bytes, width: int, height: int) -> int:
    """The least 8x8 blocks that this frame's scans must code."""
    factors = [(frame[2 + 3 * i] >> 4, frame[2 + 3 * i] & 15) for i in range(frame[0])]
    if not factors or any(h == 0 or v == 0 for h, v in factors):
        raise MalformedError("the JPEG's frame header has no components")
    wide, high = max(h for h, _ in factors), max(v for _, v in factors)
    return sum(-(-width * h // (wide * 8)) * -(-height * v // (high * 8)) for h, v in factors)


def _check_scan_bytes(scan_bytes: int, blocks: int, sof: int) -> None:
    """A Huffman-coded block takes at least two code words of one bit each (progressive: one).

    A file with less is cut off or has a forged size; libjpeg would fill the rest with grey and report success.
    """
    if scan_bytes * 8 < blocks * _LEAST_BITS[sof]:
        raise MalformedError("the JPEG has too few bytes for the size it claims")
