"""The `toolkit` command: what it says, what it costs, how it ends."""

import itertools
import json
import os
import shlex
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from serving.config import ServeConfig
from toolkit.cli import one_root
from toolkit.cli.toml import to_toml
from toolkit.core.config import load, validate
from toolkit.core.errors import EnvironmentFault

TOOLKIT = str(Path(sys.executable).with_name("toolkit"))


def toolkit(*words: str, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [TOOLKIT, *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **env},
        timeout=60,
    )


def test_help_lists_every_command() -> None:
    """The first thing people type."""
    done = toolkit("--help")

    assert done.returncode == 0
    assert {"serve", "request", "bench", "config", "version"} <= {
        line.split()[0] for line in done.stdout.splitlines() if line.strip()
    }


@pytest.mark.parametrize("words", [("--help",), ("serve", "--help"), ("config", "--help"), ("version",)])
def test_help_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    """That keeps it under 300 ms: 0.2 s were measured, most of it Python and typer."""
    script = f"import sys, toolkit.cli; sys.argv[1:] = {list(words)!r}\ntry: toolkit.cli.main()\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}

    assert "typer" in loaded
    assert (
        loaded
        & {"rich", "numpy", "PIL", "httpx", "uvicorn", "uvloop", "prometheus_client", "asyncio", "orjson"}
        == set()
    )


def test_version_names_the_engine_too() -> None:
    """People report it."""
    assert "sglang 0.5.23" in toolkit("version").stdout


def test_an_unknown_command_is_wrong_usage() -> None:
    """Exit code 2."""
    assert toolkit("sreve").returncode == 2


def test_a_wrong_key_is_named_with_the_nearest_and_without_a_traceback() -> None:
    """Exit code 2 and one message."""
    done = toolkit("serve", "--set", "gateway.prot=1")

    assert done.returncode == 2
    assert done.stderr == "toolkit: configuration:\n  gateway.prot: unknown key; did you mean 'port'?\n"


def test_packages_from_one_root_are_fine() -> None:
    """As installed."""
    assert (one_root() / "pyproject.toml").exists()


def test_a_strangers_package_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyPI has a `runbooks` that would be imported in the place of ours."""
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(EnvironmentFault, match=rf"'stranger' comes from {tmp_path}"):
        one_root(("toolkit", "stranger"))
    with pytest.raises(EnvironmentFault, match="'nowhere' is missing"):
        one_root(("toolkit", "nowhere"))


def test_the_shown_configuration_reads_back_the_same(tmp_path: Path) -> None:
    """`toolkit config show` is how people get their first serve.toml."""
    shown = toolkit(
        "config", "show", "--set", "gateway.port=9000", "--set", 'access.allowed_hosts=["a:1", "b:2"]'
    )
    path = tmp_path / "serve.toml"
    path.write_text(shown.stdout)

    again = load(ServeConfig, path)
    assert again.gateway.port == 9000
    assert again == validate(
        ServeConfig, {"gateway": {"port": 9000}, "access": {"allowed_hosts": ["a:1", "b:2"]}}, "test"
    )
    assert toolkit("config", "show", "--config", str(path)).stdout == shown.stdout


def test_every_key_is_shown_with_its_description() -> None:
    """A description on every field, above it."""
    lines = to_toml(ServeConfig()).splitlines()
    bare = [
        line
        for above, line in itertools.pairwise(lines)
        if " = " in line and line[0] != "#" and above[:1] != "#"
    ]

    assert bare == []


def test_the_schema_is_json() -> None:
    """Editors complete serve.toml with it."""
    assert "engine" in json.loads(toolkit("config", "schema").stdout)["properties"]


def model_in(folder: Path) -> str:
    (folder / "config.json").write_text("{}")
    return str(folder)


def test_a_dry_run_prints_lines_that_a_shell_runs(tmp_path: Path) -> None:
    """Every process, quoted, for GPUs that this machine need not have."""
    done = toolkit(
        "serve", "--dry-run", "--model", model_in(tmp_path), "--prefill", "0-3", "--decode", "4-7", "--tp", "2",
        "--transfer", "rdma", "--ib-device", "mlx5_0", "--set", 'engine.extra_args=["--chat-template", "a b.jinja"]',
    )  # fmt: skip
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("# ")]
    first = shlex.split(next(line for line in done.stdout.splitlines() if line.startswith("SGLANG")))

    assert done.returncode == 0, done.stderr
    assert names == ["prefill-0:", "prefill-1:", "decode-0:", "decode-1:", "gateway:"]
    assert first[first.index("--chat-template") + 1] == "a b.jinja"
    assert "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=false" in first


def test_a_dry_run_as_json_holds_the_same() -> None:
    """One object per process."""
    rows = [
        json.loads(line)
        for line in toolkit("serve", "--dry-run", "--json", "--decode-count", "2").stdout.splitlines()
    ]

    assert [row["name"] for row in rows] == ["prefill-0", "decode-0", "decode-1", "gateway"]
    assert rows[0]["env"]["MC_FORCE_TCP"] == "1"
    assert "cpu_engine" in rows[0]["argv"]


def test_a_dry_run_of_attached_engines_starts_only_the_gateway() -> None:
    """They run already."""
    done = toolkit(
        "serve",
        "--dry-run",
        "--attach-prefill",
        "http://p:1?bootstrap_port=2",
        "--attach-decode",
        "http://d:1",
    )

    assert "# prefill-0: http://p:1\n# runs already" in done.stdout
    assert "serving.gateway" in done.stdout


def test_flags_win_over_the_file_and_set_over_both(tmp_path: Path) -> None:
    """Defaults < file < flags < --set."""
    path = tmp_path / "serve.toml"
    path.write_text('[gateway]\nport = 7001\nhost = "127.0.0.2"\n[engine.decode]\ncount = 2\n')
    shown = toolkit(
        "serve", "--dry-run", "--json", "-c", str(path), "--port", "7002", "--set", "engine.decode.count=1"
    )
    rows = [json.loads(line) for line in shown.stdout.splitlines()]

    assert [row["name"] for row in rows] == ["prefill-0", "decode-0", "gateway"]
    assert rows[-1]["url"] == "http://127.0.0.2:7002"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--model", "/no/such"), 2, "no folder with a config.json"),
        (("--prefill", "0-2", "--decode", "3", "--tp", "2", "--dry-run"), 2, "No model is named"),
        (("--prefill", "0", "--set", 'engine.kind="cpu"'), 2, "use --prefill-count"),
        (("--transfer", "rdma"), 2, "needs ib_device"),
        (("--transfer", "carrier-pigeon"), 2, "'tcp' or 'rdma'"),
        (("--attach-decode", "http://d:1"), 2, "go together"),
        (("--set", "engine.python=/no/such/python"), 3, "no such program"),
        (("--config", "/no/such.toml"), 2, "cannot be read"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(
    words: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    """One message, the right exit code, no run folder."""
    done = toolkit("serve", "--port", "0", *words, cwd=tmp_path)

    assert (done.returncode, done.stderr.startswith("toolkit: ")) == (code, True)
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_gpus_that_are_not_there_are_missed_early(tmp_path: Path) -> None:
    """Exit code 3: the command line is right, the machine is not. An nvidia-smi that finds none counts as none."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho No devices were found\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    done = toolkit(
        "serve", "--port", "0", "--prefill", "0", "--decode", "1", PATH=f"{tmp_path}:{os.environ['PATH']}"
    )

    assert done.returncode == 3
    assert "--dry-run" in done.stderr


def test_a_taken_port_is_said_early(tmp_path: Path) -> None:
    """With the way out."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = toolkit("serve", "--port", str(port), cwd=tmp_path)

    assert done.returncode == 3
    assert f"127.0.0.1:{port} cannot be bound" in done.stderr
    assert "--port" in done.stderr


def test_the_shown_toml_is_toml() -> None:
    """By the standard library's parser."""
    assert tomllib.loads(to_toml(ServeConfig()))["gateway"]["port"] == 8000


def test_the_experiment_on_lease_caps_asks_for_what_it_lacks(tmp_path: Path) -> None:
    """A service to change, classes that exist, parts of a pool."""
    for words, told in (
        ((), "give --live"),
        (("--live", "--short", "tiny"), "text_only"),
        (("--live", "--caps", "a"), "0.3,0.15,0.08"),
        (("--live",), "running `toolkit serve`"),
    ):
        done = toolkit("experiment", "lease-cap", *words, cwd=tmp_path)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
