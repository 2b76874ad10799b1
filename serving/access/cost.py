"""What preparing an image will take, from its header alone: memory at its peak and CPU time.

Admission goes by these figures, so they err on the high side. Pillow keeps RGB as four bytes a pixel.
"""

from dataclasses import dataclass

from serving.access.header import ImageHeader

_PIXEL_BYTES = {
    "1": 1,
    "L": 1,
    "P": 1,
    "I;16": 2,
    "I;16B": 2,
    "I;16L": 2,
    "LA": 4,
}  # of Pillow's modes; others: 4
_NS_PER_PIXEL = {"JPEG": 9, "PNG": 60, "WEBP": 45, "GIF": 30, "AVIF": 60}
_NS_PER_SCANNED_PIXEL = 2.5  # of a progressive JPEG, for each scan
_MARGIN = 3.4  # decode.MARGIN
_FIXED_BYTES = 4_000_000
_FIXED_S = 0.002


@dataclass(frozen=True, slots=True)
class Cost:
    """memory_bytes: growth of the process at the peak, the file itself not counted. cpu_s: seconds on one core."""

    memory_bytes: int
    cpu_s: float


def cost_of(header: ImageHeader, target: tuple[int, int]) -> Cost:
    """Of decoding an image and making `target` (width, height) of it."""
    pixels = header.width * header.height
    decoded = pixels
    if header.format == "JPEG":
        decoded = pixels // _shrink(header, target) ** 2
    each = _PIXEL_BYTES.get(header.mode, 4)
    memory = decoded * each + target[0] * target[1] * 16
    if each != 4 or header.mode in ("CMYK", "RGBA", "PA"):
        memory += decoded * 8  # converted once or twice
    if header.format == "WEBP":
        memory += pixels * 12  # two canvases of the animation decoder, and the frame
    if header.format == "AVIF":
        memory += pixels * 8
    seconds = pixels * _NS_PER_PIXEL[header.format] * 1e-9
    if header.progressive:
        memory += header.blocks * 128  # 64 coefficients of 2 bytes
        seconds += pixels * header.scans * _NS_PER_SCANNED_PIXEL * 1e-9
    return Cost(memory + header.size_bytes + _FIXED_BYTES, seconds + _FIXED_S)


def _shrink(header: ImageHeader, target: tuple[int, int]) -> int:
    """The DCT scale's denominator that decode chooses."""
    wide, high = sorted(header.size)
    least, most = sorted(target)
    return next((n for n in (8, 4, 2) if wide >= n * _MARGIN * least and high >= n * _MARGIN * most), 1)
