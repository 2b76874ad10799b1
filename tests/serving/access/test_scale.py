"""Pictures scaled window by window equal those scaled at once."""

import random

import numpy as np
import pytest
from PIL import Image

from serving.access import scale
from serving.access.decoder import Choice, choose
from serving.access.pixels import Pixels

BICUBIC = Image.Resampling.BICUBIC


def noise(width: int, height: int, seed: int) -> Image.Image:
    rows = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(rows)


def in_two_passes(image: Image.Image, size: tuple[int, int], down_first: bool) -> Image.Image:
    """By Pillow, each pass of the whole picture."""
    between = (image.width, size[1]) if down_first else (size[0], image.height)
    return image.resize(between, BICUBIC).resize(size, BICUBIC)


def gap(one: Image.Image, other: Image.Image) -> int:
    assert (one.mode, one.size) == (other.mode, other.size)
    return int(np.abs(np.asarray(one, dtype=int) - np.asarray(other, dtype=int)).max())


@pytest.mark.parametrize("decoder", ["portable", "fast"])
@pytest.mark.parametrize("window_bytes", [1 << 14, 1 << 16, 2 << 20])
def test_windows_leave_no_trace(decoder: Choice, window_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of all sizes, up and down, either way first. Rounding: one level in the first pass is two after the second."""
    monkeypatch.setattr(scale, "PLAIN_BYTES", window_bytes)
    stream = random.Random(window_bytes)

    for number in range(40):
        width, height = stream.randrange(1, 400), stream.randrange(1, 400)
        size = stream.choice((width, stream.randrange(1, 500))), stream.choice((height, height + 1, 77))
        image = noise(width, height, number).convert(stream.choice(("RGB", "L")))
        down_first = bool(number % 2)
        made = scale.scaled(image, size, choose(decoder), down_first)
        assert gap(made, in_two_passes(image, size, down_first)) <= 2, (width, height, size)


@pytest.mark.parametrize("decoder", ["portable", "fast"])
def test_a_window_as_high_as_its_target_is_scaled_all_the_same(
    decoder: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """745 rows of the source make the first 745 of the target here, three rows of them shared with the next."""
    monkeypatch.setattr(scale, "PLAIN_BYTES", 2 << 20)
    image = noise(702, 809, 1)

    assert gap(scale.scaled(image, (700, 812), choose(decoder)), in_two_passes(image, (700, 812), False)) <= 2


@pytest.mark.parametrize(("decoder", "bands"), [("portable", 3), ("fast", 3), ("fast", 4)])
@pytest.mark.parametrize("down_first", [False, True])
def test_pixels_of_any_layout_give_the_same_picture(
    decoder: Choice, bands: int, down_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RGB, and the RGBX that fast decodes to, in memory that goes while it is read."""
    monkeypatch.setattr(scale, "WINDOW_BYTES", 1 << 18)
    monkeypatch.setattr(scale, "PLAIN_BYTES", 1 << 18)
    image = noise(2000, 1500, 3)
    pixels = Pixels(2000, 1500, bands)
    pixels.buffer[:] = image.tobytes("raw", "RGB" if bands == 3 else "RGBX")

    made = scale.scaled(pixels, (560, 420), choose(decoder), down_first)

    assert gap(made, scale.scaled(image, (560, 420), choose(decoder), down_first)) <= 1


def test_no_window_has_more_rows_than_the_estimate_says() -> None:
    """Of memory, which is made from it."""
    seen: list[int] = []

    class Watching:
        def across(self, image: Image.Image, width: int, top: int, bottom: int) -> Image.Image:
            seen.append(bottom - top)
            return image.crop((0, 0, width, bottom - top))

        def down(self, image: Image.Image, height: int, top: float, bottom: float) -> Image.Image:
            return image.crop((0, 0, image.width, height))

    for size, target in (((4000, 3000), (1148, 840)), ((900, 4000), (28, 84)), ((300, 200), (616, 420))):
        seen.clear()
        scale.scaled(Image.new("RGB", size), target, Watching())
        assert max(seen) <= scale.window_rows(size[0], size[1] / target[1], plain=True)
