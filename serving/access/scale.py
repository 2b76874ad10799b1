"""From decoded pixels to the opaque picture of the target size, in two passes: across, then down.

The order is the engine's own (torch's), and shows, since levels are cut to 0..255 in between. Pillow 13 goes down
first where a picture is tall, so each pass is asked for by itself. A picture that is to be turned by a quarter
afterwards goes down first here.

Both passes are done window by window: some rows of the target, from the rows of the source that they need. What lies
between the passes stays small that way, and so do copies of what is neither RGB nor grey.
"""

import math
from typing import Protocol

from PIL import Image

from serving.access.opaque import is_plain, opaque
from serving.access.pixels import Pixels
from serving.access.steps import resizing

WINDOW_BYTES = 2 << 20
"""Of a window's source rows, at four bytes a pixel."""

PLAIN_BYTES = 8 << 20
"""The same where the source is scaled as it lies: nothing is converted on the way."""

_LEAST_ROWS = 16  # of the target in a window: neighbours share four rows' worth of the source
_REACH = 2  # of the bicubic, in rows of source or target, whichever are larger


class Resizer(Protocol):
    """Antialiased bicubic along one side, of pictures in L, RGB, or RGBA whose alpha is not looked at (gives RGB)."""

    def across(self, image: Image.Image, width: int, top: int, bottom: int) -> Image.Image:
        """Rows `top` to `bottom`, made `width` wide."""
        ...

    def down(self, image: Image.Image, height: int, top: float, bottom: float) -> Image.Image:
        """`height` rows in place of those from `top` to `bottom`, whose neighbours beyond count as well."""
        ...


def scaled(
    source: Image.Image | Pixels, size: tuple[int, int], resizer: Resizer, down_first: bool = False
) -> Image.Image:
    """An RGB or L picture of exactly `size` (width, height), transparency on white. Pixels are used up."""
    width, height = size
    scale = source.size[1] / height
    reach = _REACH * max(scale, 1.0)
    most = (PLAIN_BYTES if _lies_ready(source) else WINDOW_BYTES) / (4 * source.size[0])
    each = max(_LEAST_ROWS, int((most - 2 * reach) / scale))
    made: Image.Image | None = None
    for first in range(0, height, each):
        last = min(first + each, height)
        top, bottom = first * scale, last * scale
        above = max(0, math.floor(top - reach))
        below = min(source.size[1], math.ceil(bottom + reach))
        image, offset = _rows(source, above, below)
        with resizing():
            if down_first:
                rows = resizer.down(image, last - first, top - above + offset, bottom - above + offset)
                rows = resizer.across(rows, width, 0, last - first)
            else:
                rows = resizer.across(image, width, offset, offset + below - above)
                rows = resizer.down(rows, last - first, top - above, bottom - above)
        del image  # before the next window takes as much
        if rows.size == size:
            return rows
        if made is None:
            made = Image.new(rows.mode, size, None)
        made.paste(rows, (0, first))
    assert made is not None
    return made


def window_rows(width: int, scale: float, plain: bool) -> int:
    """The most source rows in a window, of a source that is `width` wide and `scale` times as high as its target."""
    most = (PLAIN_BYTES if plain else WINDOW_BYTES) / (4 * width)
    return math.ceil(max(most, _LEAST_ROWS * scale + 2 * _REACH * max(scale, 1.0))) + 2


def _lies_ready(source: Image.Image | Pixels) -> bool:
    if isinstance(source, Pixels):
        return source.bands == 4 and not source.alpha
    return is_plain(source)


def _rows(source: Image.Image | Pixels, top: int, bottom: int) -> tuple[Image.Image, int]:
    """An opaque picture, and which of its rows is the source's `top`."""
    if isinstance(source, Pixels):
        rows = source.rows(top, bottom)
        return (opaque(rows) if source.alpha else rows), 0
    if is_plain(source):
        return source, top
    return opaque(source.crop((0, top, source.size[0], bottom))), 0
