"""The extra `fast`: chosen where it is there, exact to the engine's own resize, and never less strict than Pillow."""

import builtins
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image

from serving.access import decoder as decoders
from serving.access.decode import decode
from serving.access.decoder import choose
from serving.access.fast import Fast
from serving.access.probe import probe
from serving.access.recipe import recipe
from serving.config import AccessConfig
from tests.serving.access import pictures
from tests.serving.access.pictures import saved
from tests.serving.access.test_decode import GRID
from tests.serving.access.test_parity import engine_python
from toolkit.core.errors import EnvironmentFault, InvalidRequest

LIMITS = AccessConfig()
SCRIPT = Path(__file__).with_name("engine_resize.py")


@pytest.fixture
def undecided() -> Any:
    choose.cache_clear()
    yield
    choose.cache_clear()


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    there = builtins.__import__

    def missing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith((package, "serving.access.fast")):
            raise ImportError(f"No module named {package!r}")
        return there(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)


@pytest.mark.usefixtures("undecided")
def test_auto_is_fast_where_its_libraries_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """And Pillow alone elsewhere; whoever asks for fast by name is told what to install."""
    assert choose("auto").name == "fast"
    assert choose("portable").name == "portable"
    choose.cache_clear()

    without(monkeypatch, "simplejpeg")

    assert choose("auto").name == "portable"
    with pytest.raises(EnvironmentFault, match=r"pip install 'mm-serving-toolkit\[fast\]'"):
        choose("fast")


@pytest.mark.usefixtures("undecided")
def test_an_unknown_pillow_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resizer writes into Pillow's memory, whose layout is known by version only."""
    monkeypatch.setattr(PIL, "__version__", "99.0")

    assert choose("auto").name == "portable"
    with pytest.raises(RuntimeError, match=r"not tried with Pillow 99\.0"):
        Fast()


def test_cached_pictures_of_the_two_are_kept_apart() -> None:
    """auto is whichever it comes to."""
    made = {
        name: recipe(AccessConfig(decoder=name), GRID)  # type: ignore[arg-type]
        for name in ("auto", "fast", "portable")
    }

    assert made["auto"] == made["fast"] != made["portable"]
    assert decoders.choose("fast").libraries[:2] == decoders.choose("portable").libraries


@pytest.mark.slow
def test_no_level_differs_from_the_engines_resize(tmp_path: Path) -> None:
    """Where no DCT scale is used, up or down, upright or turned, of a JPEG's pixels or a PNG's: not one level."""
    stream = random.Random(4)
    noise = np.random.default_rng(4)
    for number in range(16):
        size = stream.randrange(60, 900), stream.randrange(60, 900)
        kind = "JPEG" if number % 2 else "PNG"
        picture = (
            pictures.photo(*size)
            if number % 3
            else Image.fromarray(noise.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
        )
        orientation = stream.choice((1, 1, 6))
        data = saved(picture, kind, exif=pictures.with_orientation(orientation))
        header = probe(data, LIMITS)
        made = np.asarray(decode(data, header, GRID.target_size(*header.size), "fast"))
        upright = pictures.plainly(data)
        if orientation == 6:
            upright = upright.transpose(Image.Transpose.ROTATE_270)
        np.savez(
            tmp_path / f"{number} {kind} {size} {orientation}.npz", source=np.asarray(upright), made=made
        )

    command = [engine_python(), str(SCRIPT), str(tmp_path)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert len(found) == 16
    assert set(found.values()) == {0}, found


@pytest.mark.parametrize("shrink", [1, 2])
def test_what_simplejpeg_complains_of_is_pillows_to_judge(shrink: int) -> None:
    """Junk between segments or in a scan, a missing restart mark: the same answer from both, picture or error."""
    stream = random.Random(shrink)
    whole = saved(pictures.photo(400, 300), "JPEG", restart_marker_rows=2)
    target = (56, 28) if shrink > 1 else (280, 196)
    taken = 0
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(stream.choice((1, 2))):
            data[stream.randrange(600, len(data))] = stream.randrange(256)
        answers = []
        for name in ("portable", "fast"):
            try:
                header = probe(bytes(data), LIMITS)
                answers.append(np.asarray(decode(bytes(data), header, target, name), dtype=int))  # type: ignore[arg-type]
            except InvalidRequest as error:
                answers.append(error.code.code)
        assert type(answers[0]) is type(answers[1])
        if not isinstance(answers[0], str):
            taken += 1
            assert np.abs(answers[0] - answers[1]).max() <= 2

    assert taken > 10


def test_grey_and_cmyk_jpegs_are_pillows_to_decode() -> None:
    """And scaled as fast as others."""
    for mode in ("L", "CMYK"):
        data = saved(pictures.photo(400, 300).convert(mode), "JPEG", quality=95)
        header = probe(data, LIMITS)
        one, other = (decode(data, header, (140, 112), name) for name in ("portable", "fast"))  # type: ignore[arg-type]
        assert np.abs(np.asarray(one, dtype=int) - np.asarray(other, dtype=int)).max() <= 1
