"""Every format becomes the picture a viewer would show, whole, or an error."""

import contextlib
import random
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageOps

from serving.access.decode import decode
from serving.access.decoder import Choice
from serving.access.grids import QwenGrid
from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved
from toolkit.core.errors import InvalidRequest, ToolkitError

LIMITS = AccessConfig()
GRID = QwenGrid("qwen2_vl", factor=28, min_pixels=56 * 56, max_pixels=1280 * 28 * 28)


DECODERS: tuple[Choice, ...] = ("portable", "fast")
each_decoder = pytest.mark.parametrize("decoder", DECODERS)


def prepared(data: bytes, target: tuple[int, int] | None = None, decoder: Choice = "auto") -> Image.Image:
    header = probe(data, LIMITS)
    return decode(data, header, target or header.size, decoder)


def levels(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"), dtype=np.int16)


def gap(one: Image.Image, other: Image.Image) -> int:
    """Largest difference of any channel of any pixel."""
    assert one.size == other.size
    return int(np.abs(levels(one) - levels(other)).max())


def psnr(one: Image.Image, other: Image.Image) -> float:
    error = float(((levels(one) - levels(other)).astype(np.float64) ** 2).mean())
    return 10 * np.log10(255**2 / error) if error else float("inf")


def middle(image: Image.Image) -> tuple[int, ...]:
    assert image.mode == "RGB"
    return image.getpixel((image.width // 2, image.height // 2))


@each_decoder
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "AVIF"])
def test_output_is_rgb_of_exactly_the_target(kind: str, decoder: Choice) -> None:
    """The target is kept to the pixel, up or down."""
    data = saved(pictures.photo(), kind)

    for target in [(644, 420), (28, 28), (1000, 900)]:
        picture = prepared(data, target, decoder)
        assert (picture.mode, picture.size) == ("RGB", target)


@each_decoder
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(kind: str, orientation: int, decoder: Choice) -> None:
    """The picture is upright in every format, and no different from turning it before the resize."""
    data = saved(pictures.arrow(), kind, exif=pictures.with_orientation(orientation))
    with Image.open(pictures.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    target = (upright.width // 2, upright.height // 2)

    assert gap(prepared(data, None, decoder), upright) == 0
    assert gap(prepared(data, target, decoder), upright.resize(target, Image.Resampling.BICUBIC)) <= 1


def test_unusable_exif_is_ignored() -> None:
    """Orientation 0 or 9, or a directory outside the block, leaves the picture as stored."""
    for orientation in (0, 9):
        data = saved(pictures.arrow(), "PNG", exif=pictures.with_orientation(orientation))
        assert gap(prepared(data), pictures.arrow()) == 0
    wild = b"II*\0\xff\xff\xff\x7f"
    assert gap(prepared(saved(pictures.arrow(), "PNG", exif=b"Exif\0\0" + wild)), pictures.arrow()) == 0


@pytest.mark.parametrize("turned", [1, 6])
def test_photo_without_dct_scale_equals_the_plain_way(turned: int) -> None:
    """Below 3.4x no scale is used: at most one level from a full decode and bicubic resize.

    That is of Pillow alone; of fast test_fast tells, by the engine's own resize.
    """
    data = saved(pictures.photo(1600, 1200), "JPEG", quality=92, exif=pictures.with_orientation(turned))
    with Image.open(pictures.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image)
    target = GRID.target_size(*upright.size)

    assert gap(prepared(data, target, "portable"), upright.resize(target, Image.Resampling.BICUBIC)) <= 1


@each_decoder
@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "target"),
    [
        (lambda: pictures.photo(4000, 3000), (644, 476)),
        (lambda: pictures.photo(4000, 3000), (308, 224)),
        (lambda: pictures.page(2500, 3500), (392, 560)),
        (pictures.zone_plate, (336, 336)),
    ],
    ids=["photo at 1/2", "photo at 1/4", "text at 1/2", "zone plate at 1/2"],
)
def test_dct_scale_stays_close_to_the_plain_way(
    make: Callable[[], Image.Image], target: tuple[int, int], decoder: Choice
) -> None:
    """With a scale: at least 45 dB from a full decode and bicubic resize, and no level further than 17."""
    data = saved(make(), "JPEG", quality=90)
    with Image.open(pictures.BytesIO(data)) as image:
        plain = image.convert("RGB").resize(target, Image.Resampling.BICUBIC)
    picture = prepared(data, target, decoder)

    assert psnr(picture, plain) >= 45
    assert gap(picture, plain) <= 17


def test_progressive_jpeg_equals_baseline() -> None:
    """The same coefficients in another order give the same picture."""
    source = pictures.photo()

    assert gap(prepared(saved(source, "JPEG")), prepared(saved(source, "JPEG", progressive=True))) == 0


def test_transparency_is_white() -> None:
    """RGBA, LA, palette with alpha, and the colour keys of grey, RGB and palette: hidden colours stay hidden."""
    clear = Image.new("RGBA", (20, 20), (10, 200, 30, 0))
    palette = Image.new("P", (20, 20), 1)
    palette.putpalette([0, 0, 0, 255, 0, 0])
    files = {
        "RGBA": saved(clear, "PNG"),
        "RGBA WebP": saved(clear, "WEBP", lossless=True, exact=True),
        "LA": saved(Image.new("LA", (20, 20), (0, 0)), "PNG"),
        "P": saved(palette, "PNG", transparency=1),
        "PA": saved(palette, "PNG", transparency=b"\xff\0"),
        "GIF": saved(palette, "GIF", transparency=1),
        "L key": saved(Image.new("L", (20, 20), 7), "PNG", transparency=7),
        "RGB key": saved(Image.new("RGB", (20, 20), (1, 2, 3)), "PNG", transparency=(1, 2, 3)),
        "LA 16 bit": pictures.png(2, 2, 16, 4, (b"\0" + b"\x10\0\0\0" * 2) * 2),
        "grey 16 bit key": pictures.png(2, 2, 16, 0, (b"\0" + b"\x10\x05" * 2) * 2, pictures.chunk(b"tRNS", b"\x10\x05")),
        "RGB 16 bit key": pictures.png(
            2, 2, 16, 2, (b"\0" + b"\x10\x05\x20\x06\x30\x07" * 2) * 2, pictures.chunk(b"tRNS", b"\x10\x05\x20\x06\x30\x07")
        ),
    }  # fmt: skip

    shown = {name: middle(prepared(data)) for name, data in files.items()}

    assert shown == dict.fromkeys(files, (255, 255, 255))


def test_half_transparency_is_mixed_with_white() -> None:
    """Alpha 128 over white lies halfway."""
    assert middle(prepared(saved(Image.new("RGBA", (9, 9), (255, 0, 0, 128)), "PNG"))) == (255, 127, 127)


def test_16_bit_grey_is_scaled() -> None:
    """Middle grey stays middle grey, where Pillow's own conversion makes it white."""
    grey = pictures.png(2, 2, 16, 0, (b"\0" + b"\x80\x00" * 2) * 2)
    white = pictures.png(2, 2, 16, 0, (b"\0" + b"\xff\xff" * 2) * 2)

    assert middle(prepared(grey)) == (128, 128, 128)
    assert middle(prepared(white)) == (255, 255, 255)


def test_other_depths() -> None:
    """16-bit RGB, 1-bit, grey JPEG and CMYK JPEG come out in their colours."""
    deep = pictures.png(2, 2, 16, 2, (b"\0" + b"\x40\x00\x80\x00\xc0\x00" * 2) * 2)
    cmyk = saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)

    assert middle(prepared(deep)) == (64, 128, 192)
    assert middle(prepared(saved(Image.new("1", (9, 9), 1), "PNG"))) == (255, 255, 255)
    assert middle(prepared(saved(Image.new("L", (16, 16), 77), "JPEG"))) == (77, 77, 77)
    red, green, blue = middle(prepared(cmyk))
    assert red > 240
    assert green < 15
    assert blue < 15


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "AVIF"])
def test_animations_show_their_first_frame(kind: str) -> None:
    """Later frames never matter."""
    red, blue = Image.new("RGB", (16, 16), (255, 0, 0)), Image.new("RGB", (16, 16), (0, 0, 255))
    options = {"WEBP": {"lossless": True}, "AVIF": {"quality": 100, "subsampling": "4:4:4"}}.get(kind, {})
    data = saved(red, kind, save_all=True, append_images=[blue, red, blue], **options)

    lost = 1 if kind == "AVIF" else 0  # it knows no lossless RGB here
    assert middle(prepared(data)) == pytest.approx((255, 0, 0), abs=lost)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "AVIF"])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.95])
def test_cut_off_files_are_refused(kind: str, kept: float) -> None:
    """There are no half pictures."""
    data = saved(pictures.photo(), kind)

    with pytest.raises(InvalidRequest) as caught:
        prepared(data[: int(len(data) * kept)])

    assert caught.value.code.code == "image_invalid"


def test_cut_off_progressive_jpeg_is_refused() -> None:
    """A progressive file that lacks its last scans would decode to a blurred picture."""
    data = saved(pictures.photo(), "JPEG", progressive=True)

    with pytest.raises(InvalidRequest):
        prepared(data[: len(data) // 2])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "AVIF"])
def test_damaged_files_never_crash(kind: str) -> None:
    """Random damage gives a picture or a typed error, nothing else."""
    stream = random.Random(kind)
    whole = bytearray(saved(pictures.photo(96, 64), kind))

    for _ in range(250):
        data = bytearray(whole)
        for _ in range(stream.choice((1, 3, 20))):
            data[stream.randrange(len(data))] = stream.randrange(256)
        if stream.random() < 0.2:
            del data[stream.randrange(len(data)) :]
        with contextlib.suppress(ToolkitError):
            assert prepared(bytes(data), (56, 28)).size == (56, 28)
