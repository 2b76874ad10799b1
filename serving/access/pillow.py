"""Pillow as it is used here: four formats, and what it raises for bytes that are not a whole image."""

import struct
import zlib

from PIL import GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

PLUGINS = (GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin)
"""Loaded here, so that no first image pays for it and Pillow never goes on to load all its other formats."""

# The decompression-bomb check raises outside the usual families; below that it warns, an error under -W error.
READ_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    OverflowError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)
