"""Still WebP pictures, by the libwebp that Pillow itself is linked with: its plain decoder, through ctypes.

Pillow decodes every WebP as an animation: two canvases, the frame, and copies of them, 16 bytes a pixel; this way it
is 3 (4 with transparency), and a third of the CPU. The interface has been stable since libwebp 0.5 (2015).
"""

import ctypes
from functools import cache

from PIL import _webp

from serving.access.pixels import Pixels

_ABI = 0x0209  # of the features' layout; the library compares the upper byte


class _Features(ctypes.Structure):
    _fields_ = (
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("has_alpha", ctypes.c_int),
        ("has_animation", ctypes.c_int),
        ("format", ctypes.c_int),
        ("pad", ctypes.c_uint32 * 5),
    )


def decoded(data: bytes, size: int) -> Pixels | None:
    """The pixels of a whole still picture in the first `size` bytes; None for an animation, or where this Pillow hides its libwebp.

    Raises ValueError for a picture that is cut off or damaged. Other threads run meanwhile.
    """
    library = _library()
    features = _Features()
    if library is None or library.WebPGetFeaturesInternal(data, size, ctypes.byref(features), _ABI):
        return None
    if features.has_animation:
        return None
    alpha = bool(features.has_alpha)
    pixels = Pixels(features.width, features.height, 4 if alpha else 3, alpha)
    into = library.WebPDecodeRGBAInto if alpha else library.WebPDecodeRGBInto
    stride = features.width * pixels.bands
    target = (ctypes.c_char * len(pixels.buffer)).from_buffer(pixels.buffer)
    if not into(data, size, target, len(pixels.buffer), stride):
        raise ValueError("libwebp cannot decode the picture")
    return pixels


@cache
def _library() -> ctypes.CDLL | None:
    """Pillow's extension; names are looked up in what it is linked with as well."""
    library = ctypes.CDLL(_webp.__file__)
    try:
        for name in ("WebPDecodeRGBInto", "WebPDecodeRGBAInto"):
            function = getattr(library, name)
            function.restype = ctypes.c_void_p
            function.argtypes = (
                ctypes.c_char_p,
                ctypes.c_size_t,
                ctypes.c_void_p,
                ctypes.c_size_t,
                ctypes.c_int,
            )
        library.WebPGetFeaturesInternal.argtypes = (
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
            ctypes.c_int,
        )
    except AttributeError:
        return None
    return library
