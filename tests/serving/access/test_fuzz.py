"""Damaged images by the thousand: a picture or a typed error, soon, in little memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

MOST_S = 0.5  # CPU of one file of at most 64 kB and 4 megapixels
MOST_MB = 96  # over what whole files took: three pictures of 4 megapixels at 8 bytes a pixel


def fuzzed(first: int, count: int) -> dict[str, object]:
    """What a process of its own found; a crash or a hang of it is this test's failure."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.serving.access.fuzz", str(first), str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(found: dict[str, object]) -> None:
    assert found["wrong"] == []
    assert found["slowest_s"] < MOST_S, found
    assert found["grown_mb"] < MOST_MB, found
    assert 0.05 < found["taken"] / found["files"] < 0.8, (
        "the damage is too small or too great to find anything"
    )


@pytest.mark.slow
def test_a_thousand_damaged_files() -> None:
    """Flips, cuts, splices, lengths, shuffled parts: no crash, hang, other exception, or memory."""
    check(fuzzed(0, 1_000))


@pytest.mark.proof
def test_ten_thousand_more() -> None:
    """The same, for longer."""
    check(fuzzed(1_000, 10_000))
