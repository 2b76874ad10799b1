"""Which pictures a request shows: recipes drawn from a class's mix, or files of a folder."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, UnidentifiedImageError

from toolkit.core.classify import HIGH_RES_PIXELS
from toolkit.core.errors import UsageFault
from toolkit.core.plan import Delivery, ImageRecipe, ImageSource
from toolkit.core.sample import WorkloadClass
from toolkit.core.seed import Seeds
from workloads.shape import ImageServer

if TYPE_CHECKING:
    import numpy as np

    from workloads.profile import ClassMix

PHOTOS: tuple[ImageSource, ...] = ("china", "flower")
FILE_TYPES = (".jpg", ".jpeg", ".png", ".webp")
PATCH = 28  # pixels a side of one image token in the Qwen-VL models
MOST_TOKENS, LEAST_TOKENS = 1280, 4  # their usual limits, and those of ServeGen's clients
ASPECTS = (1.0, 4 / 3, 3 / 2, 16 / 9, 3 / 4, 2 / 3, 9 / 16)  # what cameras and screens make


def size_of(tokens: int, rng: "np.random.Generator") -> tuple[int, int]:
    """A size that becomes about that many image tokens, each of 28 x 28 pixels, in one of the usual shapes."""
    aspect = ASPECTS[int(rng.integers(len(ASPECTS)))]
    across = max(1, round((tokens * aspect) ** 0.5))
    return across * PATCH, max(1, round(tokens / across)) * PATCH


def image_tokens(width: int, height: int) -> int:
    """About what the Qwen-VL processors make of a picture: 28 x 28 pixels a token, at most 1,280, at least 4."""
    scale = min(1.0, (MOST_TOKENS * PATCH * PATCH / (width * height)) ** 0.5)
    across, down = (max(1, int(side * scale) // PATCH) for side in (width, height))
    return max(LEAST_TOKENS, across * down)


def draw_recipe(
    mix: "ClassMix", name: WorkloadClass, seeds: Seeds, stream: str, tokens: int | None = None
) -> ImageRecipe:
    """One image of a class; `tokens`: of the size that becomes so many, else of one of the mix's sizes.

    A repeated image is one of the class's pool: its bytes come again and again, whoever asks.
    """
    if mix.repeat_share and float((repeats := seeds.rng(f"{stream}/repeat")).random()) < mix.repeat_share:
        stream = f"pool/{name.value}/{int(repeats.integers(mix.repeat_pool))}"
        if tokens is not None:  # a pool image has its own size, at most the one that was drawn
            tokens = 1 << max(0, tokens.bit_length() - 1)
            stream = f"{stream}/{tokens}"
    rng = seeds.rng(stream)
    if mix.folder:
        files = _files(mix.folder, name is WorkloadClass.HIGH_RES)
        return files[int(rng.integers(len(files)))]
    width, height = mix.sizes[int(rng.integers(len(mix.sizes)))] if tokens is None else size_of(tokens, rng)
    kind = float(rng.random())
    source: ImageSource = "natural"
    if kind < mix.photo_share:
        source = PHOTOS[int(rng.integers(len(PHOTOS)))]
    elif kind < mix.photo_share + mix.page_share:
        source = "page"
    return ImageRecipe(source, width, height, seeds.number(f"{stream}/pixels"))


def deliver(recipe: ImageRecipe, faults: ImageServer, rng: "np.random.Generator") -> ImageRecipe:
    """The recipe, with what the image server does to it."""
    shares: Mapping[Delivery, float] = {
        "slow": faults.slow_share,
        "broken": faults.broken_share,
        "huge": faults.huge_share,
    }
    mark = float(rng.random())
    for delivery, share in shares.items():
        if mark < share:
            return replace(recipe, delivery=delivery)
        mark -= share
    return recipe


@cache
def _files(folder: str, large: bool) -> tuple[ImageRecipe, ...]:
    """The folder's images that are large, or that are not. Raises UsageFault when there is none."""
    try:
        paths = sorted(path for path in Path(folder).resolve().iterdir() if path.suffix.lower() in FILE_TYPES)
    except OSError as error:
        raise UsageFault(f"image folder {folder}: cannot be read ({error.strerror}).") from error
    found = tuple(
        recipe
        for recipe in (_file(path) for path in paths)
        if (recipe.width * recipe.height >= HIGH_RES_PIXELS) == large
    )
    if not found:
        kind = "of at least" if large else "under"
        raise UsageFault(f"image folder {folder}: no JPEG, PNG or WebP {kind} {HIGH_RES_PIXELS} pixels.")
    return found


def _file(path: Path) -> ImageRecipe:
    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise UsageFault(f"{path}: no image that can be read ({error}).") from error
    return ImageRecipe("file", width, height, 0, file=str(path), sha256=hashlib.sha256(data).hexdigest())
