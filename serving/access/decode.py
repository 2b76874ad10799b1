"""Bytes to the exact picture that the model's processor would have made: decode, flatten, resize, turn.

JPEGs are decoded at a power-of-two DCT scale that keeps both sides well above the target, then resized with an
antialiased bicubic, the filter of the Qwen-VL processors.
"""

from PIL import Image

from serving.access.decoder import Choice, choose
from serving.access.formats import walk
from serving.access.header import SWAPPED, ImageHeader
from serving.access.pillow import READ_ERRORS
from serving.access.pixels import Pixels
from serving.access.scale import scaled
from serving.access.webp import decoded as decoded_webp
from toolkit.core.errors import InvalidRequest

MARGIN = 3.4
"""Decoded side / target side that the DCT scale keeps at least.

Against a full decode, photos reach 54 dB from 2 on, but small text has 37 to 42 dB at 2, 44 at 3 and 46 at 3.4; scales
that are no power of two are worse than 1/2 at any margin.
"""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(
    data: bytes, header: ImageHeader, target: tuple[int, int], decoder: Choice = "auto"
) -> Image.Image:
    """The upright RGB picture of exactly `target` (width, height); `header` is probe's answer for `data`.

    The first frame of an animation; transparency on white; 16-bit grey scaled to 8. Raises
    InvalidRequest(image_invalid) for anything that does not decode to its end: there are no half pictures.
    """
    means = choose(decoder)
    turned = header.orientation in SWAPPED
    stored = (target[1], target[0]) if turned else target
    try:
        if header.format == "JPEG":
            picture = means.jpeg(data, header, shrink_of(header, target), stored, down_first=turned)
        else:
            picture = scaled(_loaded(data, header), stored, means, down_first=turned)
    except READ_ERRORS as error:
        raise InvalidRequest(
            f"the {header.format} image is cut off or damaged.", code="image_invalid"
        ) from error
    turn = _TURNS.get(header.orientation)
    if turn is not None:
        picture = picture.transpose(turn)
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def shrink_of(header: ImageHeader, target: tuple[int, int]) -> int:
    """The denominator of the DCT scale, 1, 2, 4 or 8, at which a JPEG is decoded for `target`."""
    (width, height), (wide, high) = header.size, target
    return next((n for n in (8, 4, 2) if width >= n * MARGIN * wide and height >= n * MARGIN * high), 1)


def _loaded(data: bytes, header: ImageHeader) -> Image.Image | Pixels:
    essence = walk(data)
    if header.format == "WEBP":
        pixels = decoded_webp(data, sum(len(part) for part in essence.parts))
        if pixels is not None:
            return pixels
    with Image.open(essence.file(), formats=[header.format]) as image:
        image.load()
        return image
