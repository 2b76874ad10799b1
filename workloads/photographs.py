"""Cuts of two real photographs at any size.

Each photograph is enlarged or reduced once per power of two. A picture is cut from the smallest of these that leaves
room to choose a place, and gets fine 1/f grain, which a real photo of that size has and an enlargement lacks.
"""

import io
from importlib import resources
from typing import TYPE_CHECKING

from PIL import Image

from toolkit.core.plan import ImageRecipe
from workloads.bases import lay, once, picture, rows_for, rows_of
from workloads.scenes import CELLS, grain

if TYPE_CHECKING:
    import numpy as np

    from workloads.bases import Bytes

LEVELS = range(-3, 4)  # powers of two times the photograph's own size: 80 to 5,120 pixels wide
ROOM = 0.9  # most of a side that a cut takes: without a choice of places, pictures would come again
GRAIN, FINE_GRAIN = 8.0, 2.0  # of enlarged pictures, and of the others
MOST_LIGHT = 255 - 4 * GRAIN  # what the photograph itself may have, so that grain fits on top


def draw_photograph(recipe: ImageRecipe) -> Image.Image:
    """The cut of that recipe's photograph, size and seed."""
    import numpy as np

    return _cut(np.random.default_rng(recipe.seed), recipe.source, recipe.width, recipe.height)


def _cut(rng: "np.random.Generator", name: str, width: int, height: int) -> Image.Image:
    for level in LEVELS:
        photo_width, photo_height = size = _size(name, level)
        if width <= ROOM * photo_width and height <= ROOM * photo_height:
            left = int(rng.integers(photo_width - width, endpoint=True))
            top = int(rng.integers(photo_height - height, endpoint=True))
            rows = rows_for(width, height)
            lay(once(_photograph, name, size), left, top, rows, add=False)
            _add_grain(rng, GRAIN if level > 0 else FINE_GRAIN, rows)
            return picture(rows)
    half = _cut(rng, name, -(-width // 2), -(-height // 2))
    larger = rows_of(half.resize((width, height), Image.Resampling.BILINEAR).point(_room_for_grain()))
    rows = larger.copy()
    _add_grain(rng, GRAIN, rows)
    return picture(rows)


def _add_grain(rng: "np.random.Generator", strength: float, rows: "Bytes") -> None:
    left, top = rng.integers(0, CELLS[0], 2).tolist()
    lay(once(grain, CELLS[0], strength), left, top, rows, add=True)


def _photograph(name: str, size: tuple[int, int]) -> "Bytes":
    pixels = once(_original, name).resize(size, Image.Resampling.BICUBIC).point(_room_for_grain())
    return rows_of(pixels)


def _size(name: str, level: int) -> tuple[int, int]:
    width, height = once(_original, name).size
    return max(1, round(width * 2.0**level)), max(1, round(height * 2.0**level))


def _original(name: str) -> Image.Image:
    data = (resources.files("workloads") / "assets" / "photos" / f"{name}.jpg").read_bytes()
    return Image.open(io.BytesIO(data)).convert("YCbCr")


def _room_for_grain() -> list[int]:
    same = list(range(256))
    return [round(value * MOST_LIGHT / 255) for value in same] + same + same
