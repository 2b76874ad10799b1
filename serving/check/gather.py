"""From a plan to facts: what the check reads of this machine. Starts nothing."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serving.access.grid import ImageGrid, grid_for
from serving.check import arguments
from serving.check.arguments import Arguments
from serving.check.facts import Engine, Facts, Kind
from serving.check.fix import has_extra
from serving.check.words import flags_of
from serving.config import ServeConfig
from serving.engines.commands import Launch
from serving.service import EngineEndpoint
from serving.topology import Plan
from toolkit.core.errors import UsageFault

KINDS: Mapping[str, Kind] = {
    "serving.engines.simulated": "simulated",
    "cpu_engine": "cpu",
    "sglang.launch_server": "gpu",
}


def facts_of(
    plan: Plan, environment: Mapping[str, str], told: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> Facts:
    """The facts of what this plan would start under that environment. told: what attached engines say of themselves."""
    asked = plan.launches and has_extra(plan.config.engine)  # of our own words all are known
    known = argument_table(plan.launches[0].argv[0]) if asked else None
    running = (_running(one, told[one.name], known) for one in plan.engines if _words(told.get(one.name, {})))
    engines = tuple(_engine(launch, environment, known) for launch in plan.launches) or tuple(running)
    folder = _folder(plan.model_path or next((one.get("model_path", "") for one in told.values()), ""))
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


def _running(endpoint: EngineEndpoint, told: Mapping[str, Any], known: Arguments | None) -> Engine:
    """An engine by what it says: the words it was started with, and what SGLang made of those that were not said."""
    flags = dict(flags_of(_words(told), known))
    states = told.get("internal_states") or [{}]
    slots = sum(state.get("effective_max_running_requests_per_dp") or 0 for state in states)
    resolved = {
        "--max-total-tokens": told.get("max_total_num_tokens"),
        "--max-running-requests": slots,
        "--page-size": told.get("page_size"),
    }
    for flag, value in resolved.items():
        if value:
            flags.setdefault(flag, (str(value),))
    kind: Kind = "cpu" if told.get("device") == "cpu" else "gpu"
    return Engine(endpoint.name, endpoint.role, kind, flags, {}, {}, attached=True)


def _words(told: Mapping[str, Any]) -> list[str]:
    """Its command line; SGLang joins the words without quotes. Empty where it does not tell, as a stand-in."""
    command = told.get("launch_command")
    return command.split() if isinstance(command, str) else []


def _folder(path: str) -> Path | None:
    folder = Path(path).expanduser()
    return folder if path and folder.is_dir() else None


def _model(folder: Path | None) -> Mapping[str, Any]:
    try:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder else {}
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _grid(config: ServeConfig, folder: Path | None) -> ImageGrid | None:
    """None where it cannot be told; the gateway says why when it starts."""
    try:
        return grid_for(config.model, folder)
    except UsageFault:
        return None
