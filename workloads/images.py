"""Pictures from recipes: natural-like scenes, text-like pages and crops of two real photographs, as JPEG bytes; and
files as they are.

Photographs have a 1/f amplitude spectrum and neighbouring colours that go together; independent noise per pixel has
neither, and its JPEG is nearly five times as large, which would make every upload and decode figure a worst case.
A scene here is a 1/f field of brightness and two weaker ones of colour over a slow gradient, with rough and smooth
regions as leaves and sky have. The field repeats seamlessly (an inverse FFT does), so a picture is a stretched copy
for its shapes and a tiled one for its detail: no FFT ever grows beyond 512 pixels a side.
"""

import hashlib
import io
import textwrap
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from toolkit.core.errors import UsageFault
from toolkit.core.plan import ImageRecipe
from workloads.texts import compose_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

HEADINGS = ("Report of the week", "Minutes of the meeting", "Terms of delivery", "Notes on the inspection")
FIELDS = (64, 512)  # smallest and largest side of a field, pixels
ROUGHNESS = 0.6  # with it a scene at quality 85 takes 1.4 to 2 bits per pixel, as the photographs do
DETAIL_FROM = 16  # cycles per field from which the tiled copy, not the stretched one, carries the spectrum


def encode(recipe: ImageRecipe) -> bytes:
    """The recipe's picture as JPEG; the same recipe gives the same bytes with the same numpy and Pillow.

    A file's bytes are the file's. Raises UsageFault when it is not the one that was planned any more.
    """
    if recipe.source == "file":
        return _file(recipe)
    drawn = {"natural": _scene, "page": _page}.get(recipe.source, _photograph)
    pixels = drawn(recipe)
    out = io.BytesIO()
    pixels.save(out, "JPEG", quality=recipe.quality)
    return out.getvalue()


def _scene(recipe: ImageRecipe) -> Image.Image:
    import numpy as np

    rng = np.random.default_rng(recipe.seed)
    width, height = recipe.width, recipe.height
    light = _field(rng, width, height) * np.float32(44) + _gradient(rng, width, height) * np.float32(40)
    light += np.float32(rng.uniform(95, 150))
    # Colour varies slowly in photographs, and the JPEG halves its resolution anyway: a stretched quarter will do.
    small = max(1, width // 4), max(1, height // 4)
    chroma = [128 + 24 * float(rng.uniform(-0.6, 0.6)) + 16 * _field(rng, *small) for _ in range(2)]
    bands = [
        Image.fromarray(_bytes(light)),
        *(_stretch(Image.fromarray(_bytes(c)), width, height) for c in chroma),
    ]
    return Image.merge("YCbCr", bands)


def _photograph(recipe: ImageRecipe) -> Image.Image:
    """A random crop of the wanted shape, resized. Enlarged ones get 1/f grain, which a real photo of that size has."""
    import numpy as np

    rng = np.random.default_rng(recipe.seed)
    whole = _photo(recipe.source)
    scale = min(whole.width / recipe.width, whole.height / recipe.height) * float(rng.uniform(0.6, 1.0))
    width, height = max(1, round(recipe.width * scale)), max(1, round(recipe.height * scale))
    left = int(rng.integers(0, whole.width - width, endpoint=True))
    top = int(rng.integers(0, whole.height - height, endpoint=True))
    cut = whole.crop((left, top, left + width, top + height))
    pixels = _stretch(cut, recipe.width, recipe.height).convert("YCbCr")
    if scale >= 1:
        return pixels
    light, *chroma = pixels.split()
    detail = _detail(_spectrum(rng, FIELDS[1])) * np.float32(8)
    grain = np.asarray(light, dtype=np.float32) + _tile(detail, recipe.width, recipe.height)
    return Image.merge("YCbCr", [Image.fromarray(_bytes(grain)), *chroma])


def _page(recipe: ImageRecipe) -> Image.Image:
    """Lines of dark words on paper, with headings and paragraphs: sharp edges, as scans and screenshots have."""
    import numpy as np

    rng = np.random.default_rng(recipe.seed)
    width, height = recipe.width, recipe.height
    paper = tuple(int(shade) for shade in rng.integers(236, 256, 3))
    page = Image.new("RGB", (width, height), paper)
    draw = ImageDraw.Draw(page)
    size = max(8, round(min(width, height) * float(rng.uniform(0.018, 0.03))))
    margin = min(width, height) // 16
    line = round(_font(size).getbbox("Hxg")[3])
    per_line = max(1, int((width - 2 * margin) / (size * 0.5)))
    top = margin
    while top < height - margin:
        heading = float(rng.random()) < 0.25
        words = compose_text(HEADINGS, 12 if heading else int(rng.integers(40, 160)), rng)
        for text in textwrap.wrap(words, per_line // 2 if heading else per_line)[: 1 if heading else None]:
            if top >= height - margin:
                break
            draw.text((margin, top), text, fill=(20, 22, 28), font=_font(size * 3 // 2 if heading else size))
            top += round(line * (2.0 if heading else 1.25))
        top += line
    return page


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _file(recipe: ImageRecipe) -> bytes:
    try:
        data = Path(recipe.file).read_bytes()
    except OSError as error:
        raise UsageFault(f"{recipe.file}: cannot be read ({error.strerror}).") from error
    if hashlib.sha256(data).hexdigest() != recipe.sha256:
        raise UsageFault(f"{recipe.file}: not the image that was planned (its SHA-256 has changed).")
    return data


@cache
def _photo(name: str) -> Image.Image:
    data = (resources.files("workloads") / "assets" / "photos" / f"{name}.jpg").read_bytes()
    return Image.open(io.BytesIO(data)).convert("RGB")


@cache
def _frequencies(side: int) -> "Floats":
    """Cycles per field of each term of a real FFT; the mean's is infinite, which takes it out of every spectrum."""
    import numpy as np

    frequencies: Floats = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :]) * side
    frequencies[0, 0] = np.inf
    return frequencies


def _spectrum(rng: "np.random.Generator", side: int) -> "NDArray[np.complex64]":
    """Random phases under a 1/f amplitude, without a mean."""
    import numpy as np

    frequencies = _frequencies(side)
    phases = np.exp(2j * np.pi * rng.random(frequencies.shape))
    spectrum: NDArray[np.complex64] = (phases / frequencies).astype(np.complex64)
    return spectrum


def _detail(spectrum: "NDArray[np.complex64]") -> "Floats":
    import numpy as np

    side = len(spectrum)
    return _to_pixels(np.where(_frequencies(side) >= DETAIL_FROM, spectrum, 0)) / _spread(side)


def _field(rng: "np.random.Generator", width: int, height: int) -> "Floats":
    """A field of that size, 1/f over the whole, whose detail comes and goes with a slow mask."""
    import numpy as np

    side = min(FIELDS[1], max(FIELDS[0], 1 << (max(width, height) - 1).bit_length()))
    spectrum = _spectrum(rng, side)
    detail = _detail(spectrum)
    shapes = _stretch(Image.fromarray(_to_pixels(spectrum) / _spread(side) - detail), width, height)
    mask = Image.fromarray((ROUGHNESS * rng.random((4, 4)) ** 2).astype(np.float32))
    rough = np.asarray(_stretch(mask, width, height), dtype=np.float32)
    return np.asarray(shapes, dtype=np.float32) + rough * _tile(detail, width, height)


@cache
def _spread(side: int) -> float:
    """Standard deviation of a field before scaling: the same for all, since only phases are random."""
    import numpy as np

    return float(_to_pixels(_spectrum(np.random.default_rng(0), side)).std())


def _to_pixels(spectrum: "NDArray[np.complex64]") -> "Floats":
    import numpy as np

    return np.fft.irfft2(spectrum, s=(len(spectrum), len(spectrum))).astype(np.float32)


def _gradient(rng: "np.random.Generator", width: int, height: int) -> "Floats":
    """A slope from -1 to 1 in a random direction: the sky over the ground."""
    import numpy as np

    angle = float(rng.uniform(0, 2 * np.pi))
    across = np.linspace(-1, 1, width, dtype=np.float32) * np.float32(np.cos(angle) * 0.7)
    down = np.linspace(-1, 1, height, dtype=np.float32) * np.float32(np.sin(angle) * 0.7)
    return across[None, :] + down[:, None]


def _tile(field: "Floats", width: int, height: int) -> "Floats":
    import numpy as np

    side = len(field)
    return np.tile(field, (-(-height // side), -(-width // side)))[:height, :width]


def _stretch(picture: Image.Image, width: int, height: int) -> Image.Image:
    return picture.resize((width, height), Image.Resampling.BICUBIC)


def _bytes(values: "Floats") -> "NDArray[np.uint8]":
    import numpy as np

    return np.clip(values, 0, 255).astype(np.uint8)
