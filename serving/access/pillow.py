"""Pillow as it is used here: five formats, and what it raises for bytes that are not a whole image."""

import struct
import zlib

from PIL import AvifImagePlugin, GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

PLUGINS = (AvifImagePlugin, GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin)
"""Loaded here, so that no first image pays for it and Pillow never goes on to load all its other formats."""

# One thread per picture, like every other format: the pool has as many as the host can bear.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1

# The decompression-bomb check raises outside the usual families; below that it warns, an error under -W error.
READ_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    OverflowError,
    AssertionError,  # Pillow's, about the bytes that it reads
    RuntimeError,  # the AVIF decoder's own
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)
