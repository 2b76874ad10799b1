"""Decoding and scaling with the libraries of the extra `fast` (docs/decisions/0014-fast-by-two-libraries.md).

simplejpeg decodes JPEGs by its own libjpeg-turbo into packed pixels; cykooz-resizer scales by Rust's
fast_image_resize, with the vector instructions of this CPU. What simplejpeg does not take without a warning goes
through Pillow's decoder, which has the last word on every file.
"""

from importlib.metadata import version
from typing import Literal

import PIL
import simplejpeg
from cykooz_resizer import CropBox, FilterType, ResizeAlg, ResizeOptions
from cykooz_resizer.rust_lib import PilImageWrapper, RustResizer
from PIL import Image

from serving.access.header import ImageHeader
from serving.access.pixels import Pixels
from serving.access.portable import Portable, load_jpeg
from serving.access.scale import scaled

PILLOWS = ("12", "13")
"""Major versions whose pictures in memory the resizer reads and writes in place: their layout is not an interface."""

# Catmull-Rom is the bicubic of Pillow and torch (a = -0.5).
_BICUBIC = ResizeAlg.convolution(FilterType.catmull_rom)


class Fast:
    """A Decoder. Raises RuntimeError where its libraries do not fit this Pillow."""

    name: Literal["fast"] = "fast"
    libraries = (
        *Portable.libraries,
        *(f"{name} {version(name)}" for name in ("simplejpeg", "cykooz-resizer")),
    )

    def __init__(self) -> None:
        if PIL.__version__.partition(".")[0] not in PILLOWS:
            raise RuntimeError(f"cykooz-resizer was not tried with Pillow {PIL.__version__}")
        sample = Image.linear_gradient("L").convert("RGB")
        ours, plain = (one.down(sample, 77, 0, 256) for one in (self, Portable()))
        if any(abs(one - other) > 1 for one, other in zip(ours.tobytes(), plain.tobytes(), strict=True)):
            raise RuntimeError("cykooz-resizer does not agree with Pillow")

    def jpeg(
        self, data: bytes, header: ImageHeader, shrink: int, size: tuple[int, int], down_first: bool
    ) -> Image.Image:
        """Three bytes a pixel where the file is decoded smaller, since memory counts there; else four, for speed."""
        decoded = _decoded(data, header, shrink) if header.mode == "RGB" else None
        source = load_jpeg(data, header, shrink) if decoded is None else decoded
        return scaled(source, size, self, down_first)

    def across(self, image: Image.Image, width: int, top: int, bottom: int) -> Image.Image:
        """Rows `top` to `bottom`, made `width` wide."""
        return _resized(image, (width, bottom - top), top, bottom)

    def down(self, image: Image.Image, height: int, top: float, bottom: float) -> Image.Image:
        """`height` rows in place of those from `top` to `bottom`."""
        return _resized(image, (image.width, height), top, bottom)


def _decoded(data: bytes, header: ImageHeader, shrink: int) -> Pixels | None:
    """None where simplejpeg sees anything odd: Pillow decides then."""
    wide, high = -(-header.width // shrink), -(-header.height // shrink)
    pixels = Pixels(wide, high, 4 if shrink == 1 else 3)
    colours = "RGBX" if shrink == 1 else "RGB"
    try:
        found = simplejpeg.decode_jpeg(data, colours, min_width=wide, min_height=high, buffer=pixels.buffer)
    except (ValueError, RuntimeError):
        return None
    return pixels if found.shape == (high, wide, pixels.bands) else None


def _resized(image: Image.Image, size: tuple[int, int], top: float, bottom: float) -> Image.Image:
    if image.size == size and (top, bottom) == (0, image.height) and image.mode in ("RGB", "L"):
        return image
    made = Image.new("L" if image.mode == "L" else "RGB", size, None)
    options = ResizeOptions(_BICUBIC, use_alpha=False)
    if (top, bottom) != (0, image.height):
        bottom = min(bottom, image.height)
        options.crop_box = CropBox(0, top, image.width, bottom - top)
    # A resizer keeps its working memory; a new one costs microseconds.
    RustResizer().resize_pil(PilImageWrapper(image), PilImageWrapper(made), options.rust_options)
    return made
