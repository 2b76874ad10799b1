"""Bytes to the exact picture that the model's processor would have made: decode, flatten, resize, turn.

JPEGs are decoded at a power-of-two DCT scale that keeps both sides well above the target, then resized with
Pillow's antialiased bicubic, the filter of the Qwen-VL processors.
"""

from io import BytesIO

from PIL import Image

from serving.access.formats import walk
from serving.access.header import SWAPPED, ImageHeader
from serving.access.pillow import READ_ERRORS
from toolkit.core.errors import InvalidRequest

MARGIN = 3
"""Decoded side / target side that the DCT scale keeps at least.

Against a full decode, photos reach 52 dB from 2 on, but small text has 37 to 41 dB at 2 and 45 to 47 at 3; scales
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


def decode(data: bytes, header: ImageHeader, target: tuple[int, int]) -> Image.Image:
    """The upright RGB picture of exactly `target` (width, height); `header` is probe's answer for `data`.

    The first frame of an animation; transparency on white; 16-bit grey scaled to 8. Raises
    InvalidRequest(image_invalid) for anything that does not decode to its end: there are no half pictures.
    """
    stored = (target[1], target[0]) if header.orientation in SWAPPED else target
    try:
        with Image.open(BytesIO(walk(data).essence()), formats=[header.format]) as image:
            if header.format == "JPEG":
                image.draft(None, (MARGIN * stored[0], MARGIN * stored[1]))
            image.load()
            picture = _flatten(image)
    except READ_ERRORS as error:
        raise InvalidRequest(
            f"the {header.format} image is cut off or damaged.", code="image_invalid"
        ) from error
    # Turned before the resize: its two passes clip in between, so their order shows.
    turn = _TURNS.get(header.orientation)
    if turn is not None:
        picture = picture.transpose(turn)
    if picture.size != target:
        picture = picture.resize(target, Image.Resampling.BICUBIC)
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _flatten(image: Image.Image) -> Image.Image:
    """The opaque picture, 8 bits a channel: RGB, or L where it is grey."""
    if image.mode.startswith("I"):
        return _from_16_bit(image)
    if image.has_transparency_data:
        key = image.info.get("transparency")
        if isinstance(key, tuple) and max(key) > 255:
            # The colour key of a 16-bit file, whose pixels Pillow has cut to their upper 8 bits already.
            image.info["transparency"] = tuple(level >> 8 for level in key)
        over = image if image.mode in ("RGBA", "LA") else image.convert("RGBA")
        base = Image.new("RGB" if over.mode == "RGBA" else "L", over.size, "white")
        base.paste(over.convert(base.mode), mask=over.getchannel("A"))
        return base
    return image if image.mode in ("RGB", "L") else image.convert("RGB")


def _from_16_bit(image: Image.Image) -> Image.Image:
    """Pillow's own conversion clips 16-bit grey at 255, which makes nearly every pixel white."""
    import numpy as np  # for this rare kind alone: importing it takes a sixth of the gateway's start

    levels = np.asarray(image)
    grey = (levels >> 8).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[levels == transparent] = 255
    return Image.fromarray(grey)
