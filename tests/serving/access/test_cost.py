"""Estimates from headers against what a process really takes."""

import json
import statistics
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["portable", "fast"])
def test_estimates_hold_for_every_kind_of_file(decoder: str) -> None:
    """Memory at the peak is never above its estimate, nor below a third of it; CPU time is within a factor of three.

    The factor is from kind to kind, since hosts differ: of what the median kind takes more or less here.
    """
    command = [sys.executable, "-m", "tests.serving.access.spending", decoder, "1"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    host = statistics.median(one["cpu_s"] / one["estimated_s"] for one in found)

    assert len(found) > 20
    for one in found:
        assert one["estimated_mb"] / 3 <= one["mb"] <= one["estimated_mb"], one
        assert 1 / 3 <= one["cpu_s"] / one["estimated_s"] / host <= 3, one
