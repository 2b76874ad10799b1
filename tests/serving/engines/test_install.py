"""The installation scripts, where they decide something."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from serving.topology import ROOT

SCRIPTS = ROOT / "scripts"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def commands(folder: Path, **bodies: str) -> dict[str, str]:
    """An environment whose PATH holds these stand-ins and the shell's own tools."""
    for name, body in bodies.items():
        (folder / name.replace("_", "-")).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name.replace("_", "-")).chmod(0o755)
    for tool in ("bash", "env", "grep", "true"):
        found = next(path for path in (Path("/bin") / tool, Path("/usr/bin") / tool) if path.exists())
        (folder / tool).symlink_to(found)
    return {"PATH": str(folder)}


def run(name: str, *words: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/bash", str(SCRIPTS / name), *words],
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


ALL_LIBRARIES = "\n".join(
    f"echo '{name} => /lib/{name}'"
    for name in ("libibverbs.so.1", "libnuma.so.1", "libcurl.so.4", "libstdc++.so.6", "libssl.so.3")
)


def test_a_machine_with_every_library_needs_nothing(tmp_path: Path) -> None:
    """No package manager is asked."""
    done = run("system_packages.sh", env=commands(tmp_path, ldconfig=ALL_LIBRARIES, apt_get="exit 9"))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_root_the_one_line_is_shown(tmp_path: Path) -> None:
    """Exit code 3, and a line to paste."""
    env = commands(tmp_path, ldconfig="echo libnuma.so.1", apt_get="exit 9", id="echo 1000")
    done = run("system_packages.sh", env=env)

    assert done.returncode == 3
    assert (
        "  apt-get update && apt-get install -y --no-install-recommends libibverbs1 libcurl4 libstdc++6 libssl3\n"
        in done.stderr
    )


def test_root_installs_what_is_missing(tmp_path: Path) -> None:
    """And only that."""
    env = commands(
        tmp_path,
        ldconfig=ALL_LIBRARIES.replace("libibverbs", "other"),
        apt_get='echo "$@" >> "$LOG"',
        id="echo 0",
    )
    done = run("system_packages.sh", env={**env, "LOG": str(tmp_path / "log")})

    assert done.returncode == 0
    assert (
        tmp_path / "log"
    ).read_text() == "update -qq\ninstall -y -qq --no-install-recommends libibverbs1\n"


def test_a_failing_apt_is_told(tmp_path: Path) -> None:
    """With the line to run by hand."""
    env = commands(tmp_path, ldconfig="true", apt_get="exit 100", id="echo 0")
    done = run("system_packages.sh", env=env)

    assert done.returncode == 3
    assert "apt-get update &&" in done.stderr


def test_another_package_manager_is_left_to_its_owner(tmp_path: Path) -> None:
    """The message names what is missing."""
    done = run("system_packages.sh", env=commands(tmp_path, ldconfig="true", id="echo 0"))

    assert done.returncode == 3
    assert "libibverbs1" in done.stderr


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3.11": "exit 0", "python3": "exit 0"}, "python3.11"),
        ({"python3.12": "exit 0", "python3": "exit 1"}, "python3.12"),
        ({"python3": "exit 0"}, "python3"),
        ({"python3.11": "exit 1", "python3": "exit 0"}, "python3"),
        ({"python3": "exit 1"}, ""),
    ],
)
def test_the_python_is_3_11_or_newer_and_has_venv(
    pythons: dict[str, str], chosen: str, tmp_path: Path
) -> None:
    """3.11 first: the pins were taken with it. One that cannot make environments does not count."""
    env = commands(tmp_path, **pythons)
    done = run("find_python.sh", env=env)

    assert done.stdout.strip() == (str(tmp_path / chosen) if chosen else "")
    assert done.returncode == (0 if chosen else 1)


def test_an_installed_checkout_is_left_alone() -> None:
    """The second `make serve` asks no package index: pip is not even started."""
    env = {**os.environ, "PIP_NO_INDEX": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([SCRIPTS / "install.sh"], env=env, capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_same_pins_are_never_in_two_files_with_two_versions() -> None:
    """All but the engine's are installed into one environment."""
    pins: dict[str, str] = {}
    for name in ("toolkit", "fast", "locust", "dev"):
        for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
            if not line.startswith("#"):
                package, _, version = line.partition("==")
                assert version, line
                assert pins.setdefault(package, version) == version


@pytest.mark.parametrize("name", ["engine-cpu", "engine-gpu"])
def test_every_engine_package_is_pinned_exactly(name: str) -> None:
    """And SGLang is the version that the shims and tests know."""
    lines = [
        line for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines() if line[:1] != "#"
    ]

    assert "sglang==0.5.23" in lines
    assert all(line.count("==") == 1 and "*" not in line for line in lines)
    assert any(line.startswith("mooncake-transfer-engine") for line in lines)


CUDA = [("torch", "2.13.0", "a"), ("nvidia-cublas", "13.1", "b")]


@pytest.mark.parametrize(
    ("files", "cuda"),
    [
        (CUDA, True),
        ([("torch", "2.13.0+cu130", "a")], True),
        ([("torch", "2.13.0+cpu", "a"), ("sympy", "1.14", "b")], False),
    ],
)
def test_a_cuda_torch_is_recognised_before_it_is_fetched(
    files: list[tuple[str, str, str]], cuda: bool
) -> None:
    """By its companions or its local version."""
    torch_download = script("torch_download")
    report = {
        "install": [{"metadata": {"name": n, "version": v}, "download_info": {"url": u}} for n, v, u in files]
    }

    assert torch_download.is_cuda(torch_download.downloads(report)) is cuda


def test_the_size_is_said_with_the_way_to_avoid_it(tmp_path: Path) -> None:
    """In GB, and TORCH_INDEX."""
    torch_download = script("torch_download")
    (tmp_path / "torch 1.whl").write_bytes(b"x" * 1000)

    assert torch_download.size_bytes(f"file://{tmp_path}/torch%201.whl") == 1000
    assert "2.5 GB in 14 files" in torch_download.warning(2_500_000_000, 14)
    assert "TORCH_INDEX" in torch_download.warning(1, 1)
