"""JPEG scans: all of the picture, or none of it."""

import itertools

import numpy as np
import pytest
from PIL import Image

from serving.access.decode import decode
from serving.access.probe import probe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved
from toolkit.core.errors import InvalidRequest

LIMITS = AccessConfig()
END = b"\xff\xd9"
WAYS: list[dict[str, object]] = [
    {}, {"optimize": True}, {"progressive": True}, {"restart_marker_blocks": 3}, {"restart_marker_rows": 1},
]  # fmt: skip


def prepared(data: bytes) -> Image.Image:
    header = probe(data, LIMITS)
    return decode(data, header, header.size)


def levels(image: Image.Image) -> np.ndarray:
    return np.asarray(image, dtype=int)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_whole_files_decode_as_ever(way: dict[str, object]) -> None:
    """What stands in for the end marker changes no pixel, whatever the size, quality, sampling or mode."""
    for (width, height), quality, sampling, mode in itertools.product(
        [(1, 1), (8, 8), (17, 33), (96, 64)], (5, 75, 100), (0, 2), ("RGB", "L", "CMYK")
    ):
        source = pictures.photo(width, height).convert(mode)
        data = saved(source, "JPEG", quality=quality, subsampling=sampling, **way)

        assert (levels(prepared(data)) == levels(pictures.plainly(data))).all()


@pytest.mark.parametrize("way", [way for way in WAYS if "progressive" not in way], ids=str)
def test_a_forged_end_marker_hides_at_most_a_few_blocks(way: dict[str, object]) -> None:
    """Decoders report success and fill the rest with grey; here over 8 bytes too few are an error, for flat pictures too."""
    for source in (
        pictures.photo(320, 240),
        Image.new("RGB", (320, 240), "white"),
        Image.new("RGB", (320, 240)),
    ):
        data = saved(source, "JPEG", **way)
        whole = levels(prepared(data))
        for missing in range(1, 60):
            try:
                shown = levels(prepared(data[: -2 - missing] + END))
            except InvalidRequest:
                continue
            off = (np.abs(shown - whole).max(axis=2) > 16).sum()
            assert off <= 16 * 16 * 2, f"{missing} bytes"
            assert missing <= 16
        with pytest.raises(InvalidRequest):
            prepared(data[: len(data) * 9 // 10] + END)


def test_a_progressive_file_needs_all_its_scans() -> None:
    """Cut before the last scan it would be a blur, or a picture without colour."""
    data = saved(pictures.photo(96, 64), "JPEG", progressive=True)
    starts = [at for at in range(len(data) - 1) if data[at : at + 2] == b"\xff\xda"]

    assert len(starts) == 10
    for start in starts[1:]:
        with pytest.raises(InvalidRequest, match="lacks scans"):
            prepared(data[:start] + END)


def test_a_file_may_end_anywhere() -> None:
    """A cut inside any marker or scan header is a typed error too."""
    data = saved(pictures.photo(40, 30), "JPEG", progressive=True)

    for end in range(3, len(data)):
        with pytest.raises(InvalidRequest):
            prepared(data[:end])
