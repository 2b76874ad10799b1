"""What was measured on this host, kept beside the other caches and used while nothing that it depends on has changed."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from serving.doctor.machine import attempt, cpu, decoder
from serving.engines.tiny_model import cache_folder
from serving.plan_cpu import ImageCost, RequestCost

KEPT = 24  # measurements in the file: profiles times models


@dataclass(frozen=True, slots=True)
class Measurement:
    """The costs of one profile's classes on one host.

    load: digest of what the profile draws; recipe: digest of what becomes of an image (access/recipe.py); host: see
    `fingerprint`. cores: that were busy at once. taken_s: how long it took. measured_at: Unix seconds.
    """

    profile: str
    load: str
    recipe: str
    host: Mapping[str, Any]
    measured_at: float
    taken_s: float
    cores: int
    idle_cores: float
    images: Mapping[str, ImageCost]
    requests: Mapping[str, RequestCost]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, AttributeError."""
        images = {name: ImageCost.from_dict(one) for name, one in data["images"].items()}
        requests = {name: RequestCost.from_dict(one) for name, one in data["requests"].items()}
        return cls(**{**data, "images": images, "requests": requests})


def fingerprint() -> dict[str, Any]:
    """What decides the speed of this host's access layer, as far as it can be told."""
    machine, decodes = attempt(cpu), attempt(decoder)
    return {
        "cpu": machine.model if machine else platform.machine(),
        "cores": machine.room if machine else os.cpu_count() or 1,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "toolkit": version("mm-serving-toolkit"),
        "uvloop": version("uvloop"),
        "decoder": json.loads(json.dumps(asdict(decodes))) if decodes else {},  # as it reads back
    }


def store(env: Mapping[str, str]) -> Path:
    """The file of this host; a home may be shared by several."""
    return cache_folder(None, env) / f"plan-cpu-{platform.node() or 'unknown'}.json"


def keep(measurement: Measurement, path: Path) -> None:
    """Replaces an older one of the same load, recipe and host. Raises OSError."""
    others = [one for one in _read(path) if _key(one) != _key(measurement)]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.new")
    kept = [asdict(one) for one in [*others, measurement][-KEPT:]]
    temporary.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def find(path: Path, load: str, recipe: str, host: Mapping[str, Any]) -> Measurement | None:
    """The one of exactly that; None where there is none, or nothing readable."""
    return next(
        (one for one in _read(path) if (one.load, one.recipe) == (load, recipe) and one.host == host), None
    )


def _key(one: Measurement) -> tuple[str, str, str]:
    return one.load, one.recipe, json.dumps(one.host, sort_keys=True)


def _read(path: Path) -> list[Measurement]:
    try:
        return [Measurement.from_dict(one) for one in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
