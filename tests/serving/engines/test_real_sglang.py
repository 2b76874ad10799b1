"""Against the installed engine environment, without starting an engine."""

import base64
import csv
import hashlib
import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from serving.check import arguments
from serving.config import ServeConfig
from serving.engines.commands import CPU_HOST, Host, launches
from serving.topology import ENGINE_PYTHON, ROOT
from toolkit.core.config import validate

pytestmark = pytest.mark.engine

PYTHON = ROOT / ENGINE_PYTHON
PARSE = """
import argparse, json, sys
import cpu_engine  # the shims, as in an engine
from sglang.srt.server_args import ServerArgs

parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
options = {flag: [action.option_strings[0], sorted(map(str, action.choices or ()))]
           for flag, action in parser._option_string_actions.items() if flag.startswith("--")}
print("options", json.dumps(options))
for argv in json.load(sys.stdin):
    unknown = [word for word in argv if word.startswith("--") and word not in parser._option_string_actions]
    assert not unknown, f"not flags of this SGLang: {unknown}"
    parsed = parser.parse_args(argv)
    print(json.dumps({"mode": parsed.disaggregation_mode, "ttft": parsed.bucket_time_to_first_token,
                      "gpu": parsed.base_gpu_id, "tp": parsed.tp_size}))
"""
SETTINGS: tuple[tuple[bool, dict[str, object]], ...] = (
    (False, {}),
    (False, {"prefill": {"count": 2}, "decode": {"count": 2}, "priority": True}),
    (
        True,
        {
            "prefill": {"gpus": "0-3"},
            "decode": {"gpus": "4-7"},
            "tp": 2,
            "transfer": "rdma",
            "ib_device": "mlx5_0",
        },
    ),
    (True, {"prefill": {"gpus": "0,2"}, "decode": {"gpus": "1,3"}, "tp": 2}),
    (True, {}),
)


@cache
def site_packages() -> Path:
    found = subprocess.run(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(found.stdout.strip())


def test_sglang_is_as_its_wheel_was() -> None:
    """Every installed file of SGLang has the hash that its RECORD states: the shims live outside it."""
    record = next(site_packages().glob("sglang-0.5.23.dist-info")) / "RECORD"
    changed, checked = [], 0
    for name, stated, _ in csv.reader(record.read_text(encoding="utf-8").splitlines()):
        if stated:
            kind, _, digest = stated.partition("=")
            content = (site_packages() / name).read_bytes()
            seen = base64.urlsafe_b64encode(hashlib.new(kind, content).digest()).rstrip(b"=").decode()
            checked += 1
            if seen != digest:
                changed.append(name)

    assert changed == []
    assert checked > 1000


@cache
def own_parser() -> tuple[dict[str, list[object]], list[dict[str, object]], list[str]]:
    """SGLang's options (flag: full name, choices), what it makes of our commands, and the roles that these are for."""
    argvs, expected = [], []
    for gpu, engine in SETTINGS:
        config = validate(ServeConfig, {"engine": engine}, "test")
        for one in launches(config, Host(gpu=gpu, python="python"), "/models/m", "m", range(18000, 18100)):
            argvs.append(one.argv[3:])
            expected.append(one.role)
    env = {**os.environ, "PYTHONPATH": str(CPU_HOST)}
    done = subprocess.run(
        [PYTHON, "-c", PARSE], input=json.dumps(argvs), env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = done.stdout.splitlines()
    (options,) = [json.loads(line.removeprefix("options ")) for line in told if line.startswith("options ")]
    return options, [json.loads(line) for line in told if line.startswith("{")], expected


def test_sglangs_own_parser_accepts_every_command() -> None:
    """CPU and GPU commands alike, with no flag abbreviated or unknown."""
    _, parsed, expected = own_parser()

    assert [one["mode"] for one in parsed] == expected
    assert all({0.8, 3.0} <= set(one["ttft"]) for one in parsed)  # type: ignore[call-overload]


def test_the_check_reads_the_same_arguments_as_sglangs_own_parser() -> None:
    """Out of the source, without importing it: every name with its full name, and the choices of those that have some."""
    options, _, _ = own_parser()
    read = arguments.read(site_packages() / "sglang")
    assert read is not None
    names = {flag: full for flag, (full, _) in options.items() if flag != "--help"}
    limited = {full: choices for flag, (full, choices) in options.items() if flag == full and choices}

    assert dict(read.names) == names
    assert {flag: sorted(one) for flag, one in read.choices.items()} == {
        flag: choices for flag, choices in limited.items() if flag in read.choices
    }
    assert len(read.choices) > 0.85 * len(limited)  # the rest is worked out when SGLang is imported


def test_each_shim_names_the_line_that_needs_it() -> None:
    """`FILE:LINE `text`` in a comment: that line of the installed file holds the text. If not, look at the shim anew."""
    named = re.compile(r"((?:sglang|torchvision)/[\w/]+\.py):(\d+)\s+`([^`]+)`")
    wrong, sources = [], set()
    for source in sorted(CPU_HOST.rglob("*.py")):
        for file, number, text in named.findall(source.read_text(encoding="utf-8")):
            sources.add(source.name)
            line = (site_packages() / file).read_text(encoding="utf-8").splitlines()[int(number) - 1]
            if text not in line:
                wrong.append(f"{source.name}: {file}:{number} is {line.strip()!r}")

    assert wrong == []
    assert {
        "cpu_engine.py",
        "triton_stub.py",
        "torchvision_ops.py",
        "cpu_plugin.py",
        "operators.py",
    } <= sources


def test_sglangs_plugin_loader_finds_ours() -> None:
    """Through the entry point in the folder on PYTHONPATH, without touching the environment."""
    script = "from importlib.metadata import entry_points; print(*entry_points(group='sglang.srt.plugins'))"
    env = {**os.environ, "PYTHONPATH": str(CPU_HOST)}
    with_ours = subprocess.run(
        [PYTHON, "-c", script], env=env, capture_output=True, text=True, check=True
    ).stdout
    without = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True).stdout

    assert "cpu_plugin:register" in with_ours
    assert "cpu_plugin" not in without


def test_operators_are_declared_beside_a_cpu_torch_only() -> None:
    """A CUDA torch lets torchvision's own extension register them; a second declaration would be an error."""
    script = """
import torch, torchvision_ops
for torch.version.cuda in ("13.0", None):
    finder = torchvision_ops.DeclareBeforeImport()
    finder.find_spec("torchvision")
    print(finder.library is not None)
"""
    env = {**os.environ, "PYTHONPATH": str(CPU_HOST)}
    run = subprocess.run([PYTHON, "-c", script], env=env, capture_output=True, text=True, check=True)

    assert run.stdout.split() == ["False", "True"]
