"""The handed-over file shows the engine exactly what was prepared, or what its description says is lost."""

from io import BytesIO
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from serving.access.cost import cost_of
from serving.access.decode import decode
from serving.access.encode import encode
from serving.access.probe import probe
from serving.config import AccessConfig, Handover
from tests.serving.access import pictures
from tests.serving.access.pictures import saved

SOURCES = {
    "photo": pictures.photo,
    "text": lambda: pictures.page(644, 420),
    "rings": lambda: pictures.zone_plate(448),
}


def prepared(target: tuple[int, int] = (644, 420)) -> Image.Image:
    """A picture whose source has metadata."""
    data = saved(
        pictures.photo(),
        "JPEG",
        exif=pictures.with_orientation(3),
        icc_profile=bytes(300),
        dpi=(72, 72),
        comment=b"hidden",
    )
    return decode(data, probe(data, AccessConfig()), target)


def levels(image: Image.Image) -> np.ndarray:
    return np.asarray(image, dtype=np.int16)


def seen(file: bytes) -> Image.Image:
    """As SGLang opens it: by content, whatever Pillow can read."""
    with Image.open(BytesIO(file)) as image:
        image.load()
        return image


@pytest.mark.parametrize("handover", ["ppm", "png", "webp"])
@pytest.mark.parametrize("source", SOURCES)
def test_nothing_is_lost(handover: Handover, source: str) -> None:
    """What the engine decodes is exactly what was prepared, at odd sizes too."""
    for picture in (
        SOURCES[source](),
        SOURCES[source]().crop((0, 0, 31, 17)),
        SOURCES[source]().crop((5, 5, 6, 6)),
    ):
        again = seen(encode(picture, handover))

        assert (again.mode, again.size) == ("RGB", picture.size)
        assert np.array_equal(levels(again), levels(picture))


@pytest.mark.parametrize("source", SOURCES)
def test_jpeg_has_full_colour_and_q95(source: str) -> None:
    """Without chroma subsampling, and no further off than its description says."""
    picture = SOURCES[source]()
    again = seen(encode(picture, "jpeg"))

    assert [layer[1:3] for layer in again.layer] == [(1, 1)] * 3
    error = float(((levels(again) - levels(picture)).astype(float) ** 2).mean())
    assert 10 * np.log10(255**2 / error) > 38


@pytest.mark.parametrize("handover", get_args(Handover))
def test_no_metadata_travels(handover: Handover) -> None:
    """No Exif, profile, comment or resolution of the source, in a file of the named format."""
    file = encode(prepared(), handover)
    again = seen(file)

    assert again.format == handover.upper()
    assert not {"exif", "icc_profile", "xmp", "dpi", "comment"}.intersection(again.info)
    assert b"hidden" not in file


def test_an_uncompressed_file_has_its_size_from_the_pixels_alone() -> None:
    """Three bytes a pixel and a header of a dozen: memory is known before anything is decoded."""
    for width, height in ((28, 28), (644, 420), (1148, 840)):
        size = len(encode(Image.new("RGB", (width, height)), "ppm"))
        assert 0 < size - 3 * width * height < 20


@pytest.mark.parametrize("handover", get_args(Handover))
def test_what_admission_reckons_with_covers_the_encoding(handover: Handover) -> None:
    """The picture and what its encoder takes at the peak; lossless WebP takes 20 bytes a pixel."""
    picture = pictures.photo(1996, 1484)
    header = probe(saved(Image.new("1", picture.size), "PNG"), AccessConfig())
    encode(picture.crop((0, 0, 60, 60)), handover)

    before = pictures.fresh_peak_mb()
    encode(picture, handover)
    grown = (pictures.peak_mb() - before) * 2**20

    assert grown + 4 * 1996 * 1484 <= cost_of(header, picture.size, "portable", handover).memory_bytes
