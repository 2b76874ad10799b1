"""Pictures are deterministic, of the size asked for, and as compressible as photographs."""

import io

import numpy as np
import pytest
from PIL import Image

from toolkit.core.plan import ImageRecipe
from workloads.images import encode

SOURCES = ("natural", "china", "flower")


def pixels(recipe: ImageRecipe) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(encode(recipe))).convert("RGB"))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [(448, 448), (640, 480), (1280, 720), (37, 501), (1, 1), (1300, 3)])
def test_a_recipe_repeats_to_the_byte(source, size):
    """The same recipe is the same file, of the recipe's size; another seed is another picture."""
    recipe = ImageRecipe(source, *size, seed=5)

    data = encode(recipe)
    image = Image.open(io.BytesIO(data))

    assert (image.format, image.size, image.mode) == ("JPEG", size, "RGB")
    assert encode(recipe) == data
    if min(size) > 100:
        assert encode(ImageRecipe(source, *size, seed=6)) != data


@pytest.mark.parametrize("source", SOURCES)
def test_files_are_photo_sized(source):
    """1 to 3 bits per pixel at quality 85, where independent noise takes 6 and more."""
    recipe = ImageRecipe(source, 1280, 720, seed=1)

    bits = len(encode(recipe)) * 8 / (1280 * 720)

    assert 1.0 <= bits <= 3.0


@pytest.mark.slow
def test_a_large_photo_is_no_smooth_enlargement():
    """A 12-megapixel crop keeps a photograph's bytes per pixel: it has detail at its own scale."""
    bits = len(encode(ImageRecipe("china", 4000, 3000, seed=1))) * 8 / 12_000_000

    assert 1.0 <= bits <= 3.0


def test_scenes_have_the_spectrum_of_photographs():
    """Amplitude falls about as 1/f (log-log slope near -1); white noise would be flat."""
    light = pixels(ImageRecipe("natural", 512, 512, seed=3)).mean(axis=2)
    amplitude = np.abs(np.fft.fft2(light - light.mean()))
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(512), np.fft.fftfreq(512))) * 512
    rings = [amplitude[(frequency >= f) & (frequency < f * 1.4)].mean() for f in (4, 8, 16, 32, 64, 128)]

    slope = np.polyfit(np.log([4, 8, 16, 32, 64, 128]), np.log(rings), 1)[0]

    assert -1.6 < slope < -0.8


def test_neighbouring_pixels_go_together():
    """Correlation of neighbours is high in colour and light."""
    picture = pixels(ImageRecipe("natural", 640, 480, seed=9)).astype(float)

    for channel in range(3):
        band = picture[:, :, channel]
        assert np.corrcoef(band[:, :-1].ravel(), band[:, 1:].ravel())[0, 1] > 0.85
