"""What the engine sees of a handed-over picture is what its own processor makes of the original file."""

from pathlib import Path
from typing import get_args

import pytest

from serving.config import Handover
from tests.serving.access.fidelity import TINY, WIDE, holds, measure, page, photo, rings
from tests.serving.access.pictures import PHOTOS
from tests.serving.access.test_parity import engine_python

CASES = {
    "photo, upscaled on one axis": (PHOTOS / "china.jpg").read_bytes,
    "photo": lambda: photo(3000, 2250),
    "text page": lambda: page(2550, 3300, 42),
    "zone plate": lambda: rings(2048),
    "PNG": lambda: photo(1001, 700, "PNG"),
    "WebP": lambda: photo(1001, 700, "WEBP"),
}


@pytest.mark.slow
def test_the_engine_sees_its_processors_own_pixels(tmp_path: Path) -> None:
    """45 dB and 17 levels where a DCT scale is used, one level where none is, the same token grid; jpeg stays above 38 dB."""
    rows = measure(CASES, get_args(Handover), (TINY, WIDE), engine_python(), tmp_path)

    assert {row.scale for row in rows} == {1, 2}
    assert [row for row in rows if row.handover != "jpeg" and not holds(row)] == []
    assert [
        row for row in rows if row.handover == "jpeg" and (row.psnr < 38 or row.grids[0] != row.grids[1])
    ] == []
