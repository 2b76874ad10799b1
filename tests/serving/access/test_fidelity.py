"""What the engine sees of a handed-over picture is what its own processor makes of the original file."""

from pathlib import Path

import pytest

from tests.serving.access.fidelity import TINY, WIDE, holds, measure, page, photo, rings
from tests.serving.access.pictures import PHOTOS, with_orientation
from tests.serving.access.test_parity import engine_python

CASES = {
    "photo, upscaled on one axis": (PHOTOS / "china.jpg").read_bytes,
    "photo": lambda: photo(3600, 2700),
    "photo, turned": lambda: photo(1000, 747, exif=with_orientation(6)),
    "text page": lambda: page(2720, 3520, 45),
    "zone plate": lambda: rings(3136),
    "PNG": lambda: photo(1001, 700, "PNG"),
}


@pytest.mark.slow
def test_the_engine_sees_its_processors_own_pixels(tmp_path: Path) -> None:
    """45 dB and 17 levels where a DCT scale is used, one level where none is, the same token grid; jpeg stays above 38 dB.

    png and webp carry what ppm carries (test_encode).
    """
    rows = measure(CASES, ("ppm", "jpeg"), (TINY, WIDE), engine_python(), tmp_path)

    assert {row.case for row in rows if row.scale == 2} == {"photo", "text page", "zone plate"}
    assert [row for row in rows if row.handover != "jpeg" and not holds(row)] == []
    assert [
        row for row in rows if row.handover == "jpeg" and (row.psnr < 38 or row.grids[0] != row.grids[1])
    ] == []
