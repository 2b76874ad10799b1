"""`toolkit doctor` and `toolkit bench transfer`, as typed."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serving.doctor import machine
from toolkit.cli import app

TOOLKIT = str(Path(sys.executable).with_name("toolkit"))


def toolkit(*words, cwd):
    return subprocess.run([TOOLKIT, *words], capture_output=True, text=True, cwd=cwd, timeout=60)


def test_a_machine_without_the_engine_environment_is_a_problem_and_exit_1(tmp_path, monkeypatch):
    """The page comes whole, with what to do; nothing is raised."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "facts", partial(machine.facts, root=tmp_path))

    done = CliRunner().invoke(app, ["doctor", "--no-transfer"])

    assert done.exit_code == 1
    line = next(line for line in done.output.splitlines() if "no engine environment" in line)
    assert line.startswith("problem  engine")
    assert "-> make install" in done.output
    assert "event loop" in done.output


@pytest.mark.slow
def test_the_json_holds_facts_and_findings(tmp_path):
    done = toolkit("doctor", "--json", "--no-transfer", cwd=tmp_path)
    document = json.loads(done.stdout)

    assert done.returncode == (1 if document["worst"] == "problem" else 0)
    assert {"ok", "warning", "problem"} >= {one["level"] for one in document["findings"]}
    assert all(one["do"] for one in document["findings"] if one["level"] != "ok")
    assert document["facts"]["cpu"]["usable"] == len(os.sched_getaffinity(0))


@pytest.mark.engine
def test_the_page_has_transfer_figures_or_says_that_the_machine_is_too_busy(tmp_path):
    document = json.loads(toolkit("doctor", "--json", cwd=tmp_path).stdout)
    transfer = next(one for one in document["findings"] if one["topic"] == "transfer")

    assert transfer["level"] == "ok" or document["facts"]["transfer"]["late"]
    if transfer["level"] == "ok":
        assert "1M in" in transfer["text"] and "16M in" in transfer["text"]


@pytest.mark.engine
def test_a_transfer_benchmark_prints_a_table_and_keeps_its_folder(tmp_path):
    words = ("bench", "transfer", "--sizes", "4K,1M", "--batch", "1", "--seconds-per-size", "0.2")
    done = toolkit(*words, "--buffer", "8M", "--out", "kept", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "Qwen2.5-VL-7B" in done.stdout
    assert json.loads((tmp_path / "kept/transfer.json").read_text())["verified"] is True


def test_a_wrong_size_is_wrong_usage(tmp_path):
    done = toolkit("bench", "transfer", "--sizes", "4X", cwd=tmp_path)

    assert done.returncode == 2
    assert "--sizes '4X'" in done.stderr
