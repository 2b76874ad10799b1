"""Natural-like scenes, and the 1/f fields that they and the grain of photographs are made of.

Photographs have a 1/f amplitude spectrum and neighbouring colours that go together; independent noise per pixel has
neither, and its JPEG is nearly five times as large, which would make every upload and decode figure a worst case.
A scene is the sum of two cuts from bases of different periods, at places drawn for that picture: the sum of two 1/f
fields is one, and two places give more pictures than anybody asks. A base repeats seamlessly, has rough and smooth
regions as leaves and sky have, and is about as large as the picture, so that a picture of any size has large shapes and
fine detail. It is a stretched field for its shapes and a tiled one for its detail: no FFT grows beyond 512 pixels.
"""

from typing import TYPE_CHECKING, TypeVar

from PIL import Image

from toolkit.core.plan import ImageRecipe
from workloads.bases import BANDS, interleaved, lay, once, picture, rows_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from workloads.bases import Bytes

    Floats = NDArray[np.float32]

Pixels = TypeVar("Pixels", "Floats", "Bytes")

CELLS = (512, 448)  # pixels a side of the fields under the two bases; their sum repeats after 3,584
MOST_CELLS = 4  # a base is at most so many cells wide
ROUGHNESS = 0.6  # with it a scene at quality 85 takes 1.2 to 2 bits per pixel, as the photographs do
DETAIL_FROM = 16  # cycles per cell from which the tiled copy, not the stretched one, carries the spectrum
LIGHT, LIGHT_SPREAD = 120, 30  # most brightness of one base, and its standard deviation: two sum up to 240
COLOUR, COLOUR_SPREAD, COLOUR_REACH = 64, 11, 40  # middle of one base, its standard deviation, and its limit
SLOPE = 15  # most that brightness changes from one side to the other by itself
TINT = 14
PAD = 4  # pixels that a stretched cell borrows from its other side, so that it meets itself


def draw_scene(recipe: ImageRecipe) -> Image.Image:
    """The scene of that recipe's size and seed."""
    import numpy as np

    rng = np.random.default_rng(recipe.seed)
    width, height = recipe.width, recipe.height
    cells = min(MOST_CELLS, 1 << (-(-max(width, height) // CELLS[0]) - 1).bit_length())
    (left, top), (other_left, other_top) = rng.integers(0, 1 << 30, (2, 2)).tolist()
    rows = rows_for(width, height)
    lay(once(_base, CELLS[0], cells), left, top, rows, add=False)
    lay(once(_base, CELLS[1], cells), other_left, other_top, rows[::-1], add=True)
    rows += _light(rng, width)
    return picture(rows)


def _light(rng: "np.random.Generator", width: int) -> "Bytes":
    """What is added to every row: a slope of light, and a tint (bytes wrap, so a large one takes away)."""
    import numpy as np

    row = np.empty((width, BANDS), np.int16)
    row[:, 0] = np.linspace(float(rng.uniform(0, SLOPE)), float(rng.uniform(0, SLOPE)), width)
    row[:, 1:] = rng.integers(-TINT, TINT, 2, endpoint=True)
    return row.astype(np.uint8).reshape(-1)


def _base(cell: int, cells: int) -> "Bytes":
    """A seamless scene of cells x cells."""
    import numpy as np

    rng = np.random.default_rng(cell)
    side = cell * cells
    spectrum = random_spectrum(rng, cell)
    detail = detail_of(spectrum)
    light = _seamless(to_pixels(spectrum) / _spread(cell) - detail, side)
    rough = _seamless(np.float32(ROUGHNESS) * rng.random((4, 4), np.float32) ** 2, side)
    rough *= np.tile(detail, (cells, cells))
    light += rough
    light *= np.float32(LIGHT_SPREAD)
    light += np.float32(LIGHT / 2)
    np.clip(light, 0, LIGHT, out=light)
    # Colour varies slowly in photographs, and the JPEG halves its resolution anyway.
    colours = [_colour(rng, cell // 4, side) for _ in range(2)]
    return interleaved(light.astype(np.uint8), *colours)


def _colour(rng: "np.random.Generator", cell: int, side: int) -> "Bytes":
    import numpy as np

    field = to_pixels(random_spectrum(rng, cell)) / _spread(cell) * np.float32(COLOUR_SPREAD)
    return _seamless((np.clip(field, -COLOUR_REACH, COLOUR_REACH) + COLOUR).astype(np.uint8), side)


def grain(cell: int, strength: float) -> "Bytes":
    """A seamless cell of fine 1/f detail in the brightness alone: bytes from 0 to 4 x strength, twice that their middle."""
    import numpy as np

    detail = detail_of(random_spectrum(np.random.default_rng(cell + 1), cell))
    light = np.clip(detail * strength + 2 * strength, 0, 4 * strength).astype(np.uint8)
    none = np.zeros_like(light)
    return interleaved(light, none, none)


def _seamless(field: "Pixels", side: int) -> "Pixels":
    """A field that repeats, stretched so that it still does."""
    import numpy as np

    cell = len(field)
    padded = Image.fromarray(np.pad(field, PAD, mode="wrap"))
    box = (PAD, PAD, PAD + cell, PAD + cell)
    return np.array(padded.resize((side, side), Image.Resampling.BICUBIC, box), dtype=field.dtype)


def _frequencies(side: int) -> "Floats":
    """Cycles per field of each term of a real FFT; the mean's is infinite, which takes it out of every spectrum."""
    import numpy as np

    frequencies: Floats = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :]) * side
    frequencies[0, 0] = np.inf
    return frequencies


def random_spectrum(rng: "np.random.Generator", side: int) -> "NDArray[np.complex64]":
    """Random phases under a 1/f amplitude, without a mean."""
    import numpy as np

    frequencies = _frequencies(side)
    phases = np.exp(2j * np.pi * rng.random(frequencies.shape))
    spectrum: NDArray[np.complex64] = (phases / frequencies).astype(np.complex64)
    return spectrum


def detail_of(spectrum: "NDArray[np.complex64]") -> "Floats":
    """The fine part of a field, which is scaled to a standard deviation of 1 as a whole."""
    import numpy as np

    side = len(spectrum)
    return to_pixels(np.where(_frequencies(side) >= DETAIL_FROM, spectrum, 0)) / _spread(side)


def to_pixels(spectrum: "NDArray[np.complex64]") -> "Floats":
    """The field of a spectrum."""
    import numpy as np

    return np.fft.irfft2(spectrum, s=(len(spectrum), len(spectrum))).astype(np.float32)


def _spread(side: int) -> "np.float32":
    """Standard deviation of a field before scaling: the same for all, since only phases are random."""
    import numpy as np

    return np.float32(to_pixels(random_spectrum(np.random.default_rng(0), side)).std())
