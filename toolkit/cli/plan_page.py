"""What `toolkit plan cpu` prints for people."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolkit.cli.console import console

if TYPE_CHECKING:
    from serving.access.grid import ImageGrid
    from serving.plan_cpu import ClassNeed, CpuPlan
    from serving.plan_store import Measurement
    from toolkit.cli.plan_load import Load


def size_rule(grid: "ImageGrid") -> str:
    """For which images was measured."""
    smallest, largest = getattr(grid, "min_pixels", 0), getattr(grid, "max_pixels", 0)
    return f"{grid.family}, {smallest} to {largest} pixels" if largest else grid.family


def show(
    planned: "CpuPlan", facts: Mapping[str, Any], load: "Load", measured: "Measurement", sizes: str
) -> None:
    """The page for people. sizes: of what images are made into."""
    import time

    from rich import box
    from rich.table import Table

    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts["measured_at"]))
    above = (
        f"{facts['profile']} at a peak of {planned.qps:g} requests/s on {facts['host']['cpu']}\n"
        f"measured {day} in {facts['taken_s']:.0f} s; images as {sizes}, handed over as {facts['handover']}"
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
        *notes(planned, load, measured),
    ]
    screen.print("\n".join(below), highlight=False, markup=False, soft_wrap=True)


ROWS = (
    "requests/s", "images/request", "images measured", "CPU ms/image p50", "CPU ms/image mean", "  95 % bounds",
    "CPU ms/image p95", "  one at a time", "  all cores busy", "  in a gateway", "CPU ms/request itself", "  few at once", "  many at once", "  of these, event loop", "cores",
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
    processes = "process" if planned.gateways == 1 else "processes"
    return (
        f"In use at the peak: {planned.busy:.2f} cores ({planned.low:.2f} to {planned.high:.2f} by the bounds), {planned.loop:.2f}"
        f" of them event loops.\nTo provide, with {planned.headroom:.0%} headroom: {_cores(planned.cores)} for {planned.gateways}"
        f" gateway {processes} of up to {_cores(planned.cores_per_gateway)}, bound by {planned.bound_by}."
    )


def _cores(count: int) -> str:
    return f"{count} core" + ("s" if count != 1 else "")


def notes(planned: "CpuPlan", load: "Load", measured: "Measurement") -> list[str]:
    """What to know beside the figures."""
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
            f"Headroom: with {_cores(planned.cores)} busy {used:.0%} of the time an image waits {planned.waits_s * 1e3:.1f} ms for a free one on "
            "average (Allen-Cunneen for M/G/c, Poisson arrivals); the wait grows with 1/(1 - utilisation), and bursts are worse."
        )
    if measured.cores > 1:
        notes.append(
            f"A core is one logical CPU of this host. An image is planned at the dearest of one at a time, {measured.cores} at "
            "once (shared caches, hyperthreads) and in a gateway (large ones go to processes of their own)."
        )
    notes.append(
        "Not in it: the engines' own CPU, TLS and proxies, the download of images by URL, answers over n > 1. "
        "Answers count as long as max_tokens allows."
    )
    return notes
