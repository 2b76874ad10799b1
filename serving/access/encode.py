"""The prepared picture as the file that the engine gets (docs/decisions/0015-the-handover.md).

ppm, png and webp lose nothing and differ in who pays: ppm in bytes on the wire (3 a pixel), png and webp in CPU, here
and on both legs. jpeg loses what q95 loses.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:  # the decoding process loads this module, and no pydantic
    from serving.config import Handover

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "ppm": {},
    "png": {"compress_level": 1},
    "webp": {"lossless": True, "quality": 0, "method": 0},
    "jpeg": {"quality": 95, "subsampling": 0},
}


def encode(image: Image.Image, handover: "Handover") -> bytes:
    """The RGB picture as a file without metadata. Every way but jpeg keeps each pixel."""
    image.info = {}
    out = BytesIO()
    image.save(out, handover.upper(), **_OPTIONS[handover])
    return out.getvalue()
