"""Facts of a configuration, as `toolkit serve` would have them, on a machine with or without a GPU."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from serving.check.arguments import Arguments
from serving.check.facts import Facts
from serving.check.gather import facts_of
from serving.check.words import flags_of
from serving.config import ServeConfig
from serving.engines.commands import Host, launches
from serving.service import EngineEndpoint
from serving.topology import Plan
from toolkit.core.config import load

ARGUMENTS = Arguments(
    names={
        name: full
        for full, aliases in {
            "--tp-size": ("--tensor-parallel-size",),
            "--max-queued-requests": (),
            "--stream-interval": (),
            "--schedule-policy": (),
        }.items()
        for name in (full, *aliases)
    },
    choices={"--schedule-policy": ("fcfs", "hrrn", "lpm")},
)
"""A table like SGLang's, for where that is not installed."""
PROCESSOR = {"min_pixels": 3136, "max_pixels": 1_003_520, "patch_size": 14, "merge_size": 2}


def facts(
    folder: Path,
    settings: Iterable[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    inside: Mapping[str, str] | None = None,
    model: Mapping[str, object] | None = None,
    gpu: bool = False,
) -> Facts:
    """inside: laid over what the engines would get."""
    if model is not None:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(model))
        (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    config = load(ServeConfig, None, settings)
    path = str(folder) if model is not None else ""
    started = launches(config, Host(gpu=gpu, python="no-such-python"), path, "m", range(18000, 18100))
    engines: tuple[EngineEndpoint, ...] = tuple(one.endpoint for one in started)
    found = facts_of(Plan(config, started, engines, path, "m", "http://127.0.0.1:1"), environment or {})
    return replace(
        found,
        engines=tuple(
            replace(one, environment={**one.environment, **(inside or {})}) for one in found.engines
        ),
    )


def with_table(found: Facts, arguments: Arguments = ARGUMENTS) -> Facts:
    """The same where SGLang is installed."""
    words = {engine.name: engine.flags for engine in found.engines}
    spelled = {
        name: flags_of([word for flag, values in flags.items() for word in (flag, *values)], arguments)
        for name, flags in words.items()
    }
    engines = tuple(replace(engine, flags=spelled[engine.name]) for engine in found.engines)
    return replace(found, arguments=arguments, engines=engines)
