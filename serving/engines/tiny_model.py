"""The tiny vision-language model: built once into a cache folder by the engine environment."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from serving.engines.commands import CPU_HOST
from toolkit.core.errors import EnvironmentFault

# Part of the folder's name. Raise it whenever build_tiny_model.py would write something else, so that a machine
# with the older model builds the new one.
VERSION = 2
NAME = "tiny-qwen2.5-vl"
BUILD_TIMEOUT_S = 300


def cache_folder(configured: Path | None, env: Mapping[str, str]) -> Path:
    """Where models are kept: as configured, else $XDG_CACHE_HOME/mm-serving-toolkit, else below ~/.cache."""
    if configured is not None:
        return configured.expanduser()
    base = env.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "mm-serving-toolkit"


def folder(cache: Path) -> Path:
    """Where the model lies in that cache, built or not."""
    return cache / f"{NAME}-v{VERSION}"


def ensure(cache: Path, python: str) -> Path:
    """The model's folder below `cache`, built now unless it is there. Blocks for about 10 s when it builds.

    `python` is the engine environment's. Two builders at once do no harm: each builds aside and one rename wins.
    Raises EnvironmentFault when the build fails; nothing half-built stays.
    """
    model = folder(cache)
    if model.is_dir():
        return model
    try:
        cache.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
    except OSError as error:
        raise EnvironmentFault(f"{cache}: the tiny model cannot be kept there ({error.strerror}).") from error
    try:
        _build(aside, python)
        aside.chmod(0o755)  # mkdtemp makes it private; others may serve from it
        try:
            aside.rename(model)
        except OSError:
            if not model.is_dir():  # else: another builder was faster, and built the same
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return model


def _build(into: Path, python: str) -> None:
    command = [python, str(CPU_HOST / "build_tiny_model.py"), str(into)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFault(f"The tiny model could not be built: {error}.") from error
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise EnvironmentFault(f"The tiny model could not be built (exit {done.returncode}):\n{last}")
