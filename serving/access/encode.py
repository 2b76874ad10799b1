"""The prepared picture as the file that the engine gets."""

from io import BytesIO
from typing import Literal

from PIL import Image


def encode(image: Image.Image, handover: Literal["png", "jpeg"]) -> bytes:
    """The picture as a file without metadata. png is lossless; jpeg is q95 4:4:4."""
    out = BytesIO()
    image.info = {}
    if handover == "png":
        image.save(out, "PNG", compress_level=1)
    else:
        image.save(out, "JPEG", quality=95, subsampling=0)
    return out.getvalue()
