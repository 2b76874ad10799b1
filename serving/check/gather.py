"""From a plan to facts: what the check reads of this machine. Starts nothing, asks nobody."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving.access.grid import ImageGrid, grid_for
from serving.check import arguments
from serving.check.arguments import Arguments
from serving.check.facts import Engine, Facts, Kind
from serving.check.fix import has_extra
from serving.check.words import flags_of
from serving.config import ServeConfig
from serving.engines.commands import Launch
from serving.topology import Plan
from toolkit.core.errors import UsageFault

KINDS: Mapping[str, Kind] = {
    "serving.engines.simulated": "simulated",
    "cpu_engine": "cpu",
    "sglang.launch_server": "gpu",
}


def facts_of(plan: Plan, environment: Mapping[str, str]) -> Facts:
    """The facts of what this plan would start under that environment."""
    asked = plan.launches and has_extra(plan.config.engine)  # of our own words all are known
    known = argument_table(plan.launches[0].argv[0]) if asked else None
    engines = tuple(_engine(launch, environment, known) for launch in plan.launches)
    folder = Path(plan.model_path).expanduser() if plan.model_path else None
    roles = [engine.role for engine in plan.engines]
    return Facts(
        config=plan.config,
        engines=engines,
        attached=plan.config.engine.attached,
        pairs=roles.count("prefill") * roles.count("decode"),
        model=_model(folder),
        grid=_grid(plan.config, folder),
        arguments=known,
        environment=environment,
    )


def argument_table(python: str) -> Arguments | None:
    """SGLang's arguments, from the environment of that interpreter; None where it has none."""
    found = shutil.which(python)
    if found is None:
        return None
    below = Path(found).absolute().parent.parent / "lib"  # not resolved: a venv's python is a link out of it
    tables = (arguments.read(folder) for folder in below.glob("python3*/site-packages/sglang"))
    return next((table for table in tables if table is not None), None)


def _engine(launch: Launch, environment: Mapping[str, str], known: Arguments | None) -> Engine:
    module = next(place for place, word in enumerate(launch.argv) if word in KINDS)
    return Engine(
        name=launch.name,
        role=launch.role,
        kind=KINDS[launch.argv[module]],
        flags=flags_of(launch.argv[module + 1 :], known),
        environment={**environment, **launch.env},
        imposed=launch.env,
    )


def _model(folder: Path | None) -> Mapping[str, Any]:
    try:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder else {}
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _grid(config: ServeConfig, folder: Path | None) -> ImageGrid | None:
    """None where it cannot be told; the gateway says why when it starts."""
    try:
        return grid_for(config.model, folder if folder is not None and folder.is_dir() else None)
    except UsageFault:
        return None
