"""What pictures are cut from: each base is made once, by whoever needs it first, and stays until it is forgotten.

A base of pixels holds its rows as bytes, three per pixel (brightness and two of colour, as a JPEG does), so that the
sum of two pictures is one addition of bytes. Cutting and adding costs a tenth of encoding.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

BANDS = 3
T = TypeVar("T")

_lock = threading.RLock()
_scratch = threading.local()
_made: dict[tuple[object, ...], Any] = {}


def once(make: Callable[..., T], *arguments: object) -> T:
    """make(*arguments), made at the first call and shared after it; threads that want it meanwhile wait."""
    key = (make, *arguments)
    found: T | None = _made.get(key)
    if found is None:
        with _lock:
            found = _made.get(key)
            if found is None:
                found = _made[key] = make(*arguments)
    return found


def forget() -> None:
    """Give the memory of all bases back (0.2 GB once large photos were made)."""
    with _lock:
        _made.clear()


def rows_for(width: int, height: int) -> "Bytes":
    """Rows to draw on, in memory that this thread's last picture had: taking new memory from the system costs more than
    the drawing. They hold that picture, and are good until the thread asks again."""
    import numpy as np

    size = width * height * BANDS
    memory: Bytes | None = getattr(_scratch, "memory", None)
    if memory is None or memory.size < size:
        memory = _scratch.memory = np.empty(size, np.uint8)
    return memory[:size].reshape(height, width * BANDS)


def lay(base: "Bytes", left: int, top: int, onto: "Bytes", *, add: bool) -> None:
    """Put the part of the endless repetition of `base` that begins there onto the rows, or add it to them."""
    height, width = onto.shape
    rows, columns = base.shape
    y = 0
    while y < height:
        from_y = (top + y) % rows
        tall = min(height - y, rows - from_y)
        x = 0
        while x < width:
            from_x = (left * BANDS + x) % columns
            wide = min(width - x, columns - from_x)
            there = onto[y : y + tall, x : x + wide]
            part = base[from_y : from_y + tall, from_x : from_x + wide]
            if add:
                there += part
            else:
                there[...] = part
            x += wide
        y += tall


def interleaved(*bands: "Bytes") -> "Bytes":
    """Rows of three bytes per pixel."""
    import numpy as np

    rows = np.empty((*bands[0].shape, BANDS), np.uint8)
    for number, band in enumerate(bands):
        rows[:, :, number] = band
    return rows.reshape(len(rows), -1)


def rows_of(image: Image.Image) -> "Bytes":
    """The rows of an image in three bands."""
    import numpy as np

    return np.asarray(image).reshape(image.height, -1)


def picture(rows: "Bytes") -> Image.Image:
    """A copy of those rows as an image that a JPEG takes without a conversion."""
    size = rows.shape[1] // BANDS, rows.shape[0]
    return Image.frombuffer("YCbCr", size, rows, "raw", "YCbCr", 0, 1)
