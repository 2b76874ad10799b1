"""What Pillow raises for bytes that are not a whole image; mapped once, where it is called."""

import struct
import zlib

from PIL import Image

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
