"""The prepared picture as the file that the engine gets (docs/decisions/0015-the-handover.md).

ppm, png and webp lose nothing and differ in who pays: ppm in bytes on the wire (3 a pixel), png and webp in CPU, here
and on both legs. jpeg loses what q95 loses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from PIL import Image

from serving.config import Handover


@dataclass(frozen=True, slots=True)
class _Way:
    """A file format: its media type, Pillow's name of it, and how it is written."""

    media_type: str
    plugin: str
    options: Mapping[str, Any] = field(default_factory=dict)


_WAYS: Mapping[Handover, _Way] = {
    "ppm": _Way("image/x-portable-pixmap", "PPM"),
    "png": _Way("image/png", "PNG", {"compress_level": 1}),
    "webp": _Way("image/webp", "WEBP", {"lossless": True, "quality": 0, "method": 0}),
    "jpeg": _Way("image/jpeg", "JPEG", {"quality": 95, "subsampling": 0}),
}


def media_type(handover: Handover) -> str:
    """As in a data URI. Engines go by the file's own first bytes."""
    return _WAYS[handover].media_type


def encode(image: Image.Image, handover: Handover) -> bytes:
    """The RGB picture as a file without metadata. Every way but jpeg keeps each pixel."""
    way = _WAYS[handover]
    image.info = {}
    out = BytesIO()
    image.save(out, way.plugin, **way.options)
    return out.getvalue()
