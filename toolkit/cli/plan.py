"""`toolkit plan`: how much hardware a workload needs, from what was measured here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.console import console

if TYPE_CHECKING:
    from serving.access.grid import ImageGrid
    from serving.config import ServeConfig
    from serving.plan_cpu import ClassNeed, CpuPlan
    from serving.plan_store import Measurement
    from toolkit.cli.plan_load import Load

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

    from serving.config import ServeConfig
    from toolkit.cli.plan_load import load_of
    from toolkit.core.config import load
    from workloads.profile import load_profile

    overrides = {"model": {"path": model}} if model else {}
    effective = load(ServeConfig, config, assignments or (), overrides)
    effective, grid, path = _served(effective)
    asked = load_of(load_profile(profile))
    measured = _measured(effective, grid, path, asked, image_seconds if measure else 0.0)
    planned = _plan(measured, asked, effective, qps, headroom, cache_hit, cores_per_gateway)
    facts = _facts(measured, effective, grid, asked, bool(path) or config is not None)
    if as_json:
        document = {"version": 1, **facts, **planned.to_dict(), "notes": _notes(planned, asked, measured)}
        typer.echo(json.dumps(document, indent=2))
    else:
        _show(planned, facts, asked, measured)


def _served(config: "ServeConfig") -> "tuple[ServeConfig, ImageGrid, str]":
    """The configuration with a model that has image sizes, these, and its folder. Raises UsageFault."""
    from serving.access.grid import grid_for
    from serving.topology import model_folder, stand_in_model

    path = str(model_folder(config.model.path)) if config.model.path else ""
    if not path and config.model.family == "auto":
        config = config.model_copy(update={"model": stand_in_model(config.model)})
    return config, grid_for(config.model, Path(path) if path else None), path


def _measured(
    config: "ServeConfig", grid: "ImageGrid", path: str, load: "Load", image_s: float
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
    measurement = _measure(config, grid, path, load, host, made, image_s)
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
) -> "Measurement":
    import asyncio
    import os
    import time

    from serving.plan_front import measure_requests
    from serving.plan_measure import measure_images, prepare_one
    from serving.plan_store import Measurement
    from serving.topology import SIMULATED

    screen = console(stderr=True)

    def tell(text: str) -> None:
        if screen.is_terminal:
            screen.print(text, highlight=False, markup=False)

    began, wall = time.monotonic(), time.time()
    cores = config.access.workers or len(os.sched_getaffinity(0))
    files = {asked.name: load.images(asked) for asked in load.classes if asked.images}
    images = measure_images(
        files, prepare_one(config.access, grid), cores, image_s, lambda name, n: tell(f"{name}: {n} images")
    )
    bodies = load.bodies(SIMULATED)
    front = asyncio.run(
        measure_requests(config, path, bodies, lambda what: tell(f"a gateway's own work: {what}"))
    )
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


def _show(planned: "CpuPlan", facts: dict[str, Any], load: "Load", measured: "Measurement") -> None:
    import time

    from rich import box
    from rich.table import Table

    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts["measured_at"]))
    above = (
        f"{facts['profile']} at a peak of {planned.qps:g} requests/s on {facts['host']['cpu']}\n"
        f"measured {day} in {facts['taken_s']:.0f} s; images for {facts['image_grid']}, handed over as {facts['handover']}"
    )
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("")
    for need in planned.classes:
        table.add_column(need.load.name, justify="right")
    table.add_column("all", justify="right")
    for name, *cells in zip(ROWS, *(_cells(need) for need in planned.classes), strict=True):
        table.add_row(name, *cells, _total(name, planned))
    screen = console()
    screen.print(above, highlight=False, markup=False, soft_wrap=True)
    screen.print(table)
    unnamed = (
        "Planned for the built-in tiny model, which scales every image down to 0.2 megapixels: for yours, whose image sizes"
        " decide the cost, give --model FOLDER."
    )
    below = [
        _verdict(planned),
        *([] if facts["model_named"] else [unnamed]),
        *_notes(planned, load, measured),
    ]
    screen.print("\n".join(below), highlight=False, markup=False, soft_wrap=True)


ROWS = (
    "requests/s", "images/request", "images measured", "CPU ms/image p50", "CPU ms/image mean", "  95 % bounds",
    "CPU ms/image p95", "  one at a time", "  all cores busy", "  in a gateway", "ms/request besides", "  few at once", "  many at once", "  many, event loop", "cores",
)  # fmt: skip


def _cells(need: "ClassNeed") -> list[str]:
    load = need.load
    image = load.image
    shown = ["-"] * 8
    if image is not None:
        times = (image.alone_s, image.busy_s, image.gateway_s)
        shown = [
            str(image.n), f"{image.p50_s * 1e3:.1f}", f"{image.mean_s * 1e3:.1f}",
            f"{image.low_s * 1e3:.1f}-{image.high_s * 1e3:.1f}", f"{image.p95_s * 1e3:.1f}", *(f"{s * 1e3:.1f}" for s in times),
        ]  # fmt: skip
    request = load.request
    return [
        f"{need.requests_per_s:.2f}", f"{load.images:.2f}", *shown,
        *(f"{s * 1e3:.1f}" for s in (request.mean_s, request.few_s, request.many_s, request.loop_s)), f"{need.cores:.2f}",
    ]  # fmt: skip


def _total(row: str, planned: "CpuPlan") -> str:
    totals = {"requests/s": planned.qps, "cores": sum(need.cores for need in planned.classes)}
    return f"{totals[row]:.2f}" if row in totals else ""


def _verdict(planned: "CpuPlan") -> str:
    many = "s" if planned.gateways > 1 else ""
    return (
        f"busy: {planned.busy:.2f} cores ({planned.low:.2f} to {planned.high:.2f}), {planned.loop:.2f} of them event loops\n"
        f"with {planned.headroom:.0%} headroom: {planned.cores} core{'s' if planned.cores > 1 else ''}, "
        f"{planned.gateways} gateway process{'es' if many else ''} of up to {planned.cores_per_gateway} (bound by: {planned.bound_by})"
    )


def _notes(planned: "CpuPlan", load: "Load", measured: "Measurement") -> list[str]:
    notes = []
    if planned.cache_hit:
        notes.append(
            f"{planned.cache_hit:.0%} of the images found prepared: {planned.saved:.2f} cores less than without a cache."
        )
    elif again := {one.name: one.again for one in load.classes if one.again > 0.005}:
        told = ", ".join(f"{name} {share:.0%}" for name, share in again.items())
        notes.append(
            f"Every image counts as new. Of this profile's, some come again ({told}): try --cache-hit."
        )
    if any(need.load.image for need in planned.classes):
        used = planned.busy / planned.cores
        notes.append(
            f"Headroom: with {planned.cores} busy at {used:.0%} a picture waits {planned.waits_s * 1e3:.1f} ms for a free one on "
            "average (Allen-Cunneen for M/G/c, Poisson arrivals); the wait grows with 1/(1 - utilisation), and bursts are worse."
        )
    if measured.cores > 1:
        notes.append(
            f"A core is one logical CPU of this host. An image is planned with as the dearest of one at a time, {measured.cores} at "
            "once (shared caches, hyperthreads) and in a gateway (large ones go to processes of their own)."
        )
    notes.append(
        "Not in it: the engines' own CPU, TLS and proxies, the download of images by URL, answers over n > 1. "
        "Answers count as long as max_tokens allows."
    )
    return notes
