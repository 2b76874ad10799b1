"""Pictures are deterministic, of the size asked for, and as compressible as photographs."""

import io
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from toolkit.core.errors import UsageFault
from toolkit.core.plan import ImageRecipe
from toolkit.core.sample import WorkloadClass
from toolkit.core.seed import Seeds
from workloads.bases import BANDS, lay
from workloads.images import encode, forget_bases
from workloads.media import media_type
from workloads.pictures import draw_recipe, image_tokens, size_of
from workloads.profile import ClassMix

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


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [(224, 224), (640, 480), (560, 896), (1920, 1080), (1008, 756)])
def test_sizes_and_seeds_do_not_change_what_a_pixel_takes(source, size):
    """From a thumbnail to a screen, 0.8 to 3.5 bits per pixel for each of a few seeds, 1.2 to 2.6 in the mean."""
    pixel_count = size[0] * size[1]

    bits = [len(encode(ImageRecipe(source, *size, seed=seed))) * 8 / pixel_count for seed in range(6)]

    assert min(bits) >= 0.8
    assert max(bits) <= 3.5
    assert 1.2 <= sum(bits) / len(bits) <= 2.6


@pytest.mark.parametrize("source", [*SOURCES, "page"])
def test_pictures_of_one_base_differ_where_they_are_seen(source):
    """All of 60 pictures have bytes of their own, and neighbours are no copies of each other:
    their pixels differ by several levels in the mean."""
    shown = [pixels(ImageRecipe(source, 168, 168, seed=seed)).astype(int) for seed in range(60)]

    assert len({picture.tobytes() for picture in shown}) == 60
    assert min(np.abs(one - other).mean() for one, other in pairwise(shown)) > 4


def test_what_was_forgotten_is_made_again():
    """Bases are a matter of speed alone."""
    recipes = [ImageRecipe(source, 300, 200, seed=4) for source in (*SOURCES, "page")]
    before = [encode(recipe) for recipe in recipes]

    forget_bases()

    assert [encode(recipe) for recipe in reversed(recipes)] == before[::-1]


@pytest.mark.parametrize(("left", "top", "width", "height"), [(0, 0, 3, 2), (2, 1, 3, 4), (7, 9, 11, 5)])
def test_a_base_repeats_endlessly(left, top, width, height):
    """Every part of the repetition is the same as one cut from a wall of tiles."""
    base = np.arange(2 * 4 * BANDS, dtype=np.uint8).reshape(2, -1)
    wall = np.tile(base, (12, 12))

    onto = np.zeros((height, width * BANDS), np.uint8)

    lay(base, left, top, onto, add=False)
    lay(base, left, top, onto, add=True)

    assert (onto == 2 * wall[top : top + height, left * BANDS : (left + width) * BANDS]).all()


@pytest.mark.slow
def test_larger_than_every_base():
    """48 megapixels, and a portrait that no enlarged photograph holds."""
    for source, size in (("natural", (8000, 6000)), ("china", (8000, 6000)), ("flower", (3024, 4032))):
        data = encode(ImageRecipe(source, *size, seed=1))

        assert Image.open(io.BytesIO(data)).size == size
        assert 0.8 <= len(data) * 8 / (size[0] * size[1]) <= 3.0


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


def test_pages_look_like_text():
    """Mostly paper, some ink, and edges sharper than a scene's."""
    light = pixels(ImageRecipe("page", 1316, 728, seed=3)).mean(axis=2)
    scene = pixels(ImageRecipe("natural", 1316, 728, seed=3)).mean(axis=2)

    assert (light > 200).mean() > 0.7
    assert 0.01 < (light < 90).mean() < 0.3
    assert np.percentile(np.abs(np.diff(light)), 99) > 2 * np.percentile(np.abs(np.diff(scene)), 99)


@pytest.mark.parametrize("size", [(37, 501), (1, 1), (1300, 3), (28, 56)])
def test_any_size_is_a_page(size):
    """Odd shapes are drawn too, the same bytes each time."""
    recipe = ImageRecipe("page", *size, seed=1)

    assert Image.open(io.BytesIO(encode(recipe))).size == size
    assert encode(recipe) == encode(recipe)


def test_a_folders_files_go_out_as_they_are(tmp_path):
    """Bytes, type and size of the file; large ones for high_res, the others for the rest."""
    Image.new("RGB", (40, 30), "red").save(tmp_path / "small.png")
    Image.new("RGB", (2500, 2000), "blue").save(tmp_path / "large.webp")
    (tmp_path / "notes.txt").write_text("no image")
    mix = ClassMix(weight=1, folder=str(tmp_path), images={"min": 1, "max": 1})

    small = draw_recipe(mix, WorkloadClass.IMAGE_SHORT, Seeds(1), "a")
    large = draw_recipe(mix, WorkloadClass.HIGH_RES, Seeds(1), "b")

    assert (small.width, small.height, large.width, large.height) == (40, 30, 2500, 2000)
    assert encode(small) == (tmp_path / "small.png").read_bytes()
    assert (media_type(encode(small)), media_type(encode(large))) == ("image/png", "image/webp")
    (tmp_path / "small.png").write_bytes(b"other")
    with pytest.raises(UsageFault, match="has changed"):
        encode(small)
    (tmp_path / "small.png").unlink()
    with pytest.raises(UsageFault, match="cannot be read"):
        encode(small)


def test_a_folder_without_a_fitting_image_is_told(tmp_path):
    """Missing, empty of the kind, or holding what is no image."""
    mix = ClassMix(weight=1, folder=str(tmp_path), images={"min": 1, "max": 1})
    with pytest.raises(UsageFault, match="of at least"):
        draw_recipe(mix, WorkloadClass.HIGH_RES, Seeds(1), "a")
    (tmp_path / "x.jpg").write_bytes(b"nothing")
    with pytest.raises(UsageFault, match=r"x\.jpg"):
        draw_recipe(mix, WorkloadClass.IMAGE_SHORT, Seeds(1), "a")
    with pytest.raises(UsageFault, match="cannot be read"):
        draw_recipe(
            mix.model_copy(update={"folder": str(tmp_path / "no")}), WorkloadClass.IMAGE_SHORT, Seeds(1), "a"
        )


def test_repeats_are_the_same_bytes_in_their_share():
    """About the asked share comes from a pool that everybody draws from; the rest is new."""
    mix = ClassMix(weight=1, images={"min": 1, "max": 1}, sizes=((64, 48),), repeat_share=0.4, repeat_pool=8)
    drawn = Counter(draw_recipe(mix, WorkloadClass.IMAGE_SHORT, Seeds(1), f"r/{n}") for n in range(2000))
    again = [count for count in drawn.values() if count > 1]

    assert len(again) == 8
    assert sum(again) / 2000 == pytest.approx(0.4, abs=0.04)


@pytest.mark.parametrize("tokens", [1, 4, 16, 300, 529, 1196, 1280])
def test_sizes_give_their_tokens_back(tokens):
    """A size drawn for a number of tokens is that many patches, within a row or column of them."""
    for seed in range(10):
        width, height = size_of(tokens, np.random.default_rng(seed))
        assert image_tokens(width, height) == pytest.approx(max(4, tokens), rel=0.12, abs=3)


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (1280, 720, 45 * 25),
        (1920, 1080, 47 * 26),
        (4032, 3024, 41 * 30),
        (10, 10, 4),
        (28, 28, 4),
        (280, 280, 100),
    ],
)
def test_large_sources_are_capped(width, height, tokens):
    """Over 1,280 tokens a picture is scaled down first, as the Qwen-VL processors do."""
    assert image_tokens(width, height) == tokens
