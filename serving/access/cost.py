"""What preparing an image will take, from its header alone: memory at its peak and CPU time.

Admission goes by these figures, so they err on the high side: memory by up to a half for what decoders are known to
need, more where the header does not tell (bits of an AVIF). CPU time is one core's of the host they were measured on
(EPYC, 2026, idle), to a factor of two or three, for ordinary pictures; a hostile file can take more, which is why
workers.py ends a decode at its limit. Measured by tests/serving/access/spending.py, file kind by file kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.access.decode import shrink_of
from serving.access.header import ImageHeader
from serving.access.scale import window_rows

_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
"""Of Pillow's modes; the others have 4."""

_COEFFICIENTS_BYTES = 128  # of a block of a progressive JPEG: all are held to the last scan
_WEBP_BYTES = {
    "": 4,
    "lossless": 8,
    "animated": 16,
}  # a pixel: RGB or RGBA out of nothing, ARGB, two canvases
_AVIF_BYTES = {
    False: 14,
    True: 17,
}  # a pixel, by transparency: YUV of up to 16 bits, RGB as bytes and as picture
_UNPLAIN_COPIES = {"1": 1, "I;16": 3, "I;16B": 3, "I;16L": 3}
"""Of a window, by mode; the others, which may be transparent, have 5: cut out, converted, laid on white."""

_TARGET_BYTES = 8  # a pixel of the target: the picture, and once more turned; later less, as a file
_FIXED_BYTES = 6_500_000

# Nanoseconds per pixel and per byte of the file, and to scale a decoded pixel.
_DECODE_NS: Mapping[str, tuple[float, float]] = {
    "JPEG": (3, 10),
    "PNG": (4, 12),
    "WEBP": (15, 15),
    "GIF": (15, 10),
    "AVIF": (30, 50),
}
_PNG_BYTE_NS = 2.5  # a byte of a pixel, as decoded
_SCALE_NS = {"portable": 13.0, "fast": 4.0}
_UNPLAIN_NS = 12.0  # a pixel that is neither RGB nor grey
_ANIMATED_NS = 12.0
_SCAN_NS = 1.5  # a pixel in a scan of a progressive JPEG
_FILE: Mapping[str, tuple[float, float]] = {"ppm": (4, 4), "png": (3, 120), "webp": (21, 80), "jpeg": (2, 12)}
"""To encode it: bytes a pixel of the target beside the picture, and nanoseconds."""
_FIXED_S = 0.002


@dataclass(frozen=True, slots=True)
class Cost:
    """memory_bytes: growth of the process at the peak, the file itself not counted. cpu_s: seconds on one core."""

    memory_bytes: int
    cpu_s: float


def cost_of(
    header: ImageHeader, target: tuple[int, int], decoder: str = "portable", handover: str = "ppm"
) -> Cost:
    """Of decoding an image, scaling it to `target` (width, height) with that decoder ("portable", "fast"), and encoding it.

    In memory the file that is made takes the place of what decoding gave back.
    """
    pixels = target[0] * target[1]
    file_bytes, file_ns = _FILE[handover]
    memory = max(_memory_bytes(header, target), int(pixels * (4 + file_bytes)) + _FIXED_BYTES)
    return Cost(memory, (_cpu_ns(header, target, decoder) + pixels * file_ns) * 1e-9 + _FIXED_S)


def _memory_bytes(header: ImageHeader, target: tuple[int, int]) -> int:
    shrink = shrink_of(header, target) if header.format == "JPEG" else 1
    width, height = -(-header.width // shrink), -(-header.height // shrink)
    wide, high = target if header.size == (header.width, header.height) else target[::-1]
    decoded = width * height * _source_bytes(header)
    plain = _is_plain(header)
    rows = window_rows(width, height / high, plain)
    each = _PIXEL_BYTES.get(header.mode, 4) if plain else 4
    if plain and rows >= height:
        window = height * wide * each  # nothing is cut out; what lies between the two passes
    else:
        window = rows * each * (width * (1 if plain else _UNPLAIN_COPIES.get(header.mode, 5)) + wide)
    if header.progressive:
        decoded += header.blocks * _COEFFICIENTS_BYTES
    if header.variant == "animated":
        decoded += header.size_bytes  # Pillow reads it whole
    return decoded + window + wide * high * _TARGET_BYTES + _FIXED_BYTES


def _source_bytes(header: ImageHeader) -> int:
    """Of a decoded pixel, with all that its decoder keeps meanwhile."""
    if header.format == "WEBP":
        return _WEBP_BYTES[header.variant] + (header.mode == "RGBA")
    if header.format == "AVIF":
        return _AVIF_BYTES[header.mode == "RGBA"]
    return _PIXEL_BYTES.get(header.mode, 4)


def _cpu_ns(header: ImageHeader, target: tuple[int, int], decoder: str) -> float:
    pixels = header.pixels
    each, byte = _DECODE_NS[header.format]
    total = pixels * each + header.size_bytes * byte
    scaled = pixels
    if header.format == "JPEG":
        scaled //= shrink_of(header, target) ** 2
        if header.progressive:
            total += pixels * header.scans * _SCAN_NS
    elif header.format == "PNG":
        total += pixels * _source_bytes(header) * _PNG_BYTE_NS
    elif header.variant == "animated":
        total += pixels * _ANIMATED_NS
    if not _is_plain(header):
        total += scaled * _UNPLAIN_NS
    return total + scaled * _SCALE_NS[decoder]


def _is_plain(header: ImageHeader) -> bool:
    """Whether its pixels are scaled as they are; a colour key does not show here and counts as nothing."""
    return header.mode in ("RGB", "L")
