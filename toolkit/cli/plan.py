"""`toolkit plan`: how much hardware a workload needs, from what was measured here."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.console import console

if TYPE_CHECKING:
    from serving.access.grid import ImageGrid
    from serving.config import ServeConfig
    from serving.plan_cpu import CpuPlan
    from serving.plan_store import Measurement
    from toolkit.cli.plan_load import Load

Tell = Callable[[str, bool], None]
"""Told what is being measured; True: also where something was told a moment ago."""
TELL_EVERY_S = 5.0

app = typer.Typer(help="How much hardware a workload needs.", no_args_is_help=True)


@app.callback()
def plan() -> None:
    """One command per resource."""


@app.command()
def cpu(
    qps: Annotated[float, typer.Option(min=0.001, max=1e6, help="Requests per second at the peak, all classes together.")],
    profile: Annotated[str, typer.Option("--profile", "-p", help="A built-in profile's name, or a .toml file: its classes, images and answers.")] = "mixed",
    measure: Annotated[bool, typer.Option("--measure", help="Measure now, one to three minutes on every core. Without it, what was measured on this host is used.")] = False,
    image_seconds: Annotated[float, typer.Option(min=1, max=3600, help="CPU seconds to measure images for; fewer make wider bounds.")] = 40.0,
    headroom: Annotated[float, typer.Option(min=0, max=0.95, help="Share of the cores that stays free at the peak.")] = 0.3,
    cache_hit: Annotated[float, typer.Option(min=0, max=1, help="Share of the images that a gateway has prepared before.")] = 0.0,
    cores_per_gateway: Annotated[int, typer.Option(min=0, help="Cores that one gateway process may use; 0: all of this host.")] = 0,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="The serve.toml that will serve: limits, handover, model.")] = None,
    model: Annotated[str, typer.Option(help="Model folder: its image sizes decide what is encoded.")] = "",
    assignments: Annotated[list[str] | None, typer.Option("--set", help="Any configuration value, as access.handover=jpeg. May be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:  # fmt: skip
    """How many cores and gateway processes a profile needs at that rate, by CPU seconds per image and per request here.

    Cores = CPU s/image x images/request x requests/s, and what a gateway spends on the requests themselves, over
    1 - headroom. The engines' own CPU is not in it.

    Example: toolkit plan cpu --measure --profile mixed --qps 20

    Exit codes: 0 planned, 2 wrong usage or nothing measured yet, 3 this machine cannot measure.
    """
    import json
    import time

    from serving.config import ServeConfig
    from toolkit.cli.plan_load import load_of
    from toolkit.cli.plan_page import notes, show, size_rule
    from toolkit.core.config import load
    from workloads.profile import load_profile

    overrides = {"model": {"path": model}} if model else {}
    effective = load(ServeConfig, config, assignments or (), overrides)
    effective, grid, path = _served(effective)
    asked = load_of(load_profile(profile))
    tell = _silence if as_json else _told_from(time.monotonic())
    measured = _measured(effective, grid, path, asked, image_seconds if measure else 0.0, tell)
    planned = _plan(measured, asked, effective, qps, headroom, cache_hit, cores_per_gateway)
    facts = _facts(measured, effective, grid, asked, bool(path) or config is not None)
    if as_json:
        document = {"version": 1, **facts, **planned.to_dict(), "notes": notes(planned, asked, measured)}
        typer.echo(json.dumps(document, indent=2))
    else:
        show(planned, facts, asked, measured, size_rule(grid))


def _silence(_: str, __: bool) -> None:
    """For --json."""


def _told_from(began: float) -> Tell:
    """Lines on stderr, terminal or not: minutes without a word look like a program that hangs. began: monotonic."""
    import time

    screen, last = console(stderr=True), began - TELL_EVERY_S

    def tell(text: str, at_once: bool) -> None:
        nonlocal last
        now = time.monotonic()
        if at_once or now - last >= TELL_EVERY_S:
            last = now
            screen.print(f"{now - began:6.1f} s  {text}", highlight=False, markup=False, soft_wrap=True)

    return tell


def _served(config: "ServeConfig") -> "tuple[ServeConfig, ImageGrid, str]":
    """The configuration with a model that has image sizes, these, and its folder. Raises UsageFault."""
    from serving.access.grid import grid_for
    from serving.topology import model_folder, stand_in_model

    path = str(model_folder(config.model.path)) if config.model.path else ""
    if not path and config.model.family == "auto":
        config = config.model_copy(update={"model": stand_in_model(config.model)})
    return config, grid_for(config.model, Path(path) if path else None), path


def _measured(
    config: "ServeConfig", grid: "ImageGrid", path: str, load: "Load", image_s: float, tell: Tell
) -> "Measurement":
    """Measured now and kept, or, with 0 seconds for images, as kept. Raises UsageFault where nothing is."""
    import os

    from serving.access.recipe import recipe
    from serving.plan_store import find, fingerprint, keep, store
    from toolkit.core.errors import EnvironmentFault, UsageFault

    file, host, made = store(os.environ), fingerprint(), recipe(config.access, grid).hex()
    if not image_s:
        found = find(file, load.digest, made, host)
        if found is None:
            raise UsageFault(
                f"nothing was measured on this host for profile {load.profile.name} with these settings, or the "
                "toolkit has changed since: add --measure (one to three minutes, on every core)."
            )
        return found
    measurement = _measure(config, grid, path, load, host, made, image_s, tell)
    try:
        keep(measurement, file)
    except OSError as error:
        raise EnvironmentFault(f"{file}: the measurement cannot be kept ({error.strerror}).") from error
    return measurement


def _measure(
    config: "ServeConfig",
    grid: "ImageGrid",
    path: str,
    load: "Load",
    host: dict[str, Any],
    made: str,
    image_s: float,
    tell: Tell,
) -> "Measurement":
    import asyncio
    import os
    import time

    from serving.plan_front import measure_requests
    from serving.plan_measure import measure_images, prepare_one
    from serving.plan_store import Measurement
    from serving.topology import SIMULATED

    began, wall = time.monotonic(), time.time()
    cores = config.access.workers or len(os.sched_getaffinity(0))
    files = {asked.name: load.images(asked) for asked in load.classes if asked.images}
    tell(f"images, about {image_s:.0f} s of CPU on {cores} cores: {', '.join(files) or 'none'}", True)
    images = measure_images(
        files,
        prepare_one(config.access, grid),
        cores,
        image_s,
        lambda name, n: tell(f"images of {name}: {n} measured", False),
    )
    tell("requests: a gateway before stand-ins, with each class alone", True)
    bodies = load.bodies(SIMULATED)
    front = asyncio.run(measure_requests(config, path, bodies, lambda what: tell(f"requests: {what}", True)))
    taken = time.monotonic() - began
    return Measurement(
        profile=load.profile.name,
        load=load.digest,
        recipe=made,
        host=host,
        measured_at=wall,
        taken_s=taken,
        cores=cores,
        idle_cores=front.idle_cores,
        images={name: cost.in_a_gateway(front.images[name]) for name, cost in images.items()},
        requests=front.requests,
    )


def _plan(
    measured: "Measurement",
    load: "Load",
    config: "ServeConfig",
    qps: float,
    headroom: float,
    cache_hit: float,
    cores_per_gateway: int,
) -> "CpuPlan":
    import os

    from serving.plan_cpu import ClassLoad, plan_cpu

    loads = [
        ClassLoad(one.name, one.share, one.images, measured.requests[one.name], measured.images.get(one.name))
        for one in load.classes
    ]
    here = len(os.sched_getaffinity(0))
    usable = cores_per_gateway or here
    if config.access.workers:
        usable = min(usable, config.access.workers + 1)  # its decode threads, and the event loop's
    return plan_cpu(loads, qps, headroom, usable, cache_hit, measured.idle_cores)


def _facts(
    measured: "Measurement", config: "ServeConfig", grid: "ImageGrid", load: "Load", named: bool
) -> dict[str, Any]:
    return {
        "profile": load.profile.name,
        "host": dict(measured.host),
        "measured_at": measured.measured_at,
        "taken_s": measured.taken_s,
        "cores_busy_at_once": measured.cores,
        "idle_cores": measured.idle_cores,
        "image_grid": repr(grid),
        "model_named": named,
        "handover": config.access.handover,
    }
