"""A surge on a whole service: a gateway that sheds, and clients that take its Retry-After at its word."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from toolkit.cli.surge import surge

pytestmark = pytest.mark.slow

PROFILE = """
name = "surge"
arrival = "poisson"
drain_s = 10.0
[returning]
tries = 1
jitter_s = 0.5
[[phases]]
name = "baseline"
duration_s = 4.0
share_of_peak = 0.8
[[phases]]
name = "surge"
duration_s = 4.0
share_of_peak = 2.0
[[phases]]
name = "recovery"
duration_s = 5.0
share_of_peak = 0.8
[classes.text_only]
weight = 1
slo_class = "batch"
text_tokens = { min = 16, max = 16 }
max_tokens = { min = 16, max = 16 }
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Stand-in engines behind a gateway of five places, two of them in the engines: about 10 requests/s."""
    settings = ["engine.kind=simulated", f"runs_dir={tmp_path / 'runs'}", "schedule.max_in_flight=2", "schedule.max_waiting=3", "schedule.workload_share=1", "batch.room_share=1"]  # fmt: skip
    chosen = [word for setting in settings for word in ("--set", setting)]
    argv = [sys.executable, "-c", "from toolkit.cli import main; main()", "serve", "--json", "--port", "0", *chosen]  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield next(
                event for event in map(json.loads, process.stdout) if event["event"] == "service_ready"
            )
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def test_refused_clients_return_and_are_judged_apart(service: dict[str, Any], tmp_path: Path) -> None:
    """The gateway sheds, says when to come back, and those who do are in the file, the report and the verdict."""
    profile, folder = tmp_path / "surge.toml", tmp_path / "run"
    profile.write_text(PROFILE, encoding="utf-8")
    app = typer.Typer()
    app.command()(surge)

    result = CliRunner().invoke(
        app,
        [
            "--profile",
            str(profile),
            "--peak",
            "12",
            "--target",
            service["url"],
            "--out",
            str(folder),
            "--json",
        ],
    )

    lines = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    planned = len(json.loads((folder / "plan.json").read_text())["requests"])
    first, again = ([line for line in lines if (line["attempt"] > 0) is later] for later in (False, True))
    verdict, report = json.loads(result.stdout), json.loads((folder / "report.json").read_text())
    refused = {line["index"]: line for line in first if line["status"] == 429}

    assert result.exit_code in (0, 1), result.output
    assert refused, "a gateway of five places sheds at twice its peak"
    assert all(line["retry_after_s"] >= 1 for line in refused.values())
    assert sorted(line["index"] for line in again) == sorted(refused)
    for line in again:
        before = refused[line["index"]]
        assert 0 <= line["intended_s"] - before["ended_s"] - before["retry_after_s"] <= 0.5
        assert abs(line["sent_s"] - line["intended_s"]) < 0.5
    assert len(first) == report["total"]["offered"] == planned
    assert report["returned"]["came_back"] == verdict["surge"]["returned"] == len(again)
    assert report["returned"]["admitted"] == sum(line["outcome"] in ("completed", "broken") for line in again)
    assert verdict["surge"]["honest_429"]["value"] == pytest.approx(
        report["returned"]["admitted"] / len(again), abs=1e-3
    )
    assert verdict["largest_queue"]["count"] >= 1
    assert f"{len(again)} after their Retry-After" in (folder / "surge.txt").read_text()
