"""`toolkit experiment`: what one knob does to whom, measured."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.console import INTERRUPTED, RUNS, console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workloads.lease_cap import Row

app = typer.Typer(help="Measure what one knob does to whom.", no_args_is_help=True)


@app.command("lease-cap")
def lease_cap(
    live: Annotated[bool, typer.Option("--live", help="On a running service, whose lease.cap is changed while it goes on, and put back.")] = False,
    profile: Annotated[str, typer.Option("--profile", "-p", help="A built-in profile's name, or a .toml file: the load of each run.")] = "kv-bound",
    caps: Annotated[str, typer.Option(help="Caps to try, parts of the KV pool.")] = "0.3,0.15,0.08",
    rounds: Annotated[int, typer.Option(min=1, max=50, help="Runs per cap; the caps take turns.")] = 3,
    short: Annotated[str, typer.Option(help="Workload classes of the short requests.")] = "text_only,image_short",
    long: Annotated[str, typer.Option(help="Workload classes of the long requests.")] = "multi_image_long",
    long_loss: Annotated[float, typer.Option(min=0, max=1, help="Part of the long requests that a cap may cost before it is out of the question.")] = 0.02,
    duration: Annotated[float | None, typer.Option(min=1, help="Seconds of each run, instead of the profile's.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second, instead of the profile's.")] = None,
    run: Annotated[Path | None, typer.Option("--run", help="Run folder of the service. Default: the one started last.")] = None,
    model: Annotated[str, typer.Option(help="Model to ask for. Default: the first that the target lists.")] = "",
    seed: Annotated[int | None, typer.Option(help="Seed of every draw, instead of the profile's; each run has one of its own.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep. Default: runs/lease-cap-DATE-TIME.")] = None,
    api_key: Annotated[str, typer.Option(envvar="TOOLKIT_API_KEY", help="Key for the target.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print lease-cap.json instead of the table.")] = False,
) -> None:  # fmt: skip
    """Sweep the cap on KV leases under a load and recommend one for it.

    Prints the article's table (long success, P95 TTFT of short requests, pool use) with intervals, and whether KV blocks were
    short at all: where slots were, no cap can matter. The pool must be small for the load: kv-bound is made for the CPU pair
    started with `toolkit serve --set engine.max_total_tokens=6144 --set standard.degrade=true`.

    Exit codes: 0 a cap is recommended, 1 none is, 2 wrong usage, 3 nothing to load, 130 interrupted (whole runs are kept).

    Example: toolkit experiment lease-cap --live --profile kv-bound --rounds 3
    """
    from toolkit.core.admin import Door
    from toolkit.core.errors import UsageFault
    from toolkit.core.sample import WorkloadClass
    from workloads.lease_cap import Split
    from workloads.lease_cap_page import JSON, verdict
    from workloads.lease_cap_run import Asked, run_lease_cap
    from workloads.profile import load_profile
    from workloads.target import gateway_of

    if not live:
        raise UsageFault(
            "this experiment runs on a running service only: give --live, which changes its lease.cap for a while."
        )
    screen = console(stderr=True)

    def classes(option: str, text: str) -> frozenset[WorkloadClass]:
        try:
            return frozenset(WorkloadClass(name.strip()) for name in text.split(","))
        except ValueError as error:
            known = ", ".join(WorkloadClass)
            raise UsageFault(f"--{option} {text}: name classes of {known}, separated by commas.") from error

    def parts() -> tuple[float, ...]:
        try:
            return tuple(float(part) for part in caps.split(","))
        except ValueError as error:
            raise UsageFault(f"--caps {caps}: give parts of the pool, as 0.3,0.15,0.08.") from error

    overrides = {
        name: value
        for name, value in (("rate", rate), ("seed", seed), ("duration_s", duration))
        if value is not None
    }
    asked = Asked(Split(classes("short", short), classes("long", long)), parts(), rounds, long_loss)
    folder = out or RUNS / f"lease-cap-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    service = run or RUNS / "latest"
    door, target = Door.read(service), gateway_of(service)
    if target is None:
        raise UsageFault(f"{service} is no run folder of `toolkit serve`: name one with --run.")
    report = run_lease_cap(
        load_profile(profile, overrides),
        target,
        folder,
        door,
        asked,
        model,
        api_key,
        lambda number, of, cap: screen.print(
            f"run {number} of {of}: cap {cap:.0%} ...", highlight=False, markup=False
        ),
        RUNS,
    )
    if as_json:
        sys.stdout.write((folder / JSON).read_text(encoding="utf-8") if report.rows else "{}\n")
    else:
        typer.echo(f"profile {report.profile} at {report.target}, the service of {service.resolve()}\n")
        _print(report.rows)
        typer.echo(f"\n{verdict(report)}\n\nfolder: {folder}")
    if not report.finished:
        raise typer.Exit(INTERRUPTED)
    if report.advice is None or report.advice.cap is None:
        raise typer.Exit(1)


def _print(rows: "Sequence[Row]") -> None:
    from rich import box
    from rich.table import Table

    from workloads.lease_cap_page import COLUMNS, cells

    table = Table(*COLUMNS, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*cells(row))
    console().print(table)
