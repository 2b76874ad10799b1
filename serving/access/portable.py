"""Decoding and scaling by Pillow alone."""

from typing import Literal

from PIL import Image, __version__, features

from serving.access.formats import walk
from serving.access.header import ImageHeader
from serving.access.scale import scaled

_BICUBIC = Image.Resampling.BICUBIC


class Portable:
    """A Decoder that needs nothing but Pillow."""

    name: Literal["portable"] = "portable"
    libraries = (f"pillow {__version__}", f"libjpeg-turbo {features.version('libjpeg_turbo')}")

    def jpeg(
        self, data: bytes, header: ImageHeader, shrink: int, size: tuple[int, int], down_first: bool
    ) -> Image.Image:
        """By Pillow's draft mode."""
        return scaled(load_jpeg(data, header, shrink), size, self, down_first)

    def across(self, image: Image.Image, width: int, top: int, bottom: int) -> Image.Image:
        """Rows `top` to `bottom`, made `width` wide."""
        if bottom - top != image.height:
            # Not by resize's box, for which Pillow would go down as well.
            image = image.crop((0, top, image.width, bottom))
        return image if image.width == width else image.resize((width, image.height), _BICUBIC)

    def down(self, image: Image.Image, height: int, top: float, bottom: float) -> Image.Image:
        """`height` rows in place of those from `top` to `bottom`."""
        if (top, bottom, image.height) == (0, height, height):
            return image
        return image.resize((image.width, height), _BICUBIC, (0, top, image.width, min(bottom, image.height)))


def load_jpeg(data: bytes, header: ImageHeader, shrink: int) -> Image.Image:
    """Decoded at 1/shrink, as stored."""
    with Image.open(walk(data).file(), formats=["JPEG"]) as image:
        image.draft(None, (header.width // shrink, header.height // shrink))
        image.load()
        return image
