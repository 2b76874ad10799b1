"""`toolkit peak`: the highest rate whose SLOs hold."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.console import FAILED, INTERRUPTED, RUNS, console

if TYPE_CHECKING:
    from workloads.peak_report import PeakReport, Probe


def peak(
    profile: Annotated[str, typer.Option("--profile", "-p", help="A built-in profile's name, or a .toml file; its rate is the first one tried.")] = "smoke",
    url: Annotated[str, typer.Option("--url", "--target", help="Base URL of an OpenAI-compatible server. Default: the service started last.")] = "",
    model: Annotated[str, typer.Option(help="Model to ask for. Default: the first that the target lists.")] = "",
    rate: Annotated[float | None, typer.Option(help="First rate to try, instead of the profile's.")] = None,
    objective: Annotated[float, typer.Option(help="Share of the offered requests that must keep their SLO, in every SLO class.")] = 0.95,
    confidence: Annotated[float, typer.Option(help="Certainty with which a rate is called held, or not.")] = 0.95,
    low: Annotated[float | None, typer.Option(help="Lowest rate to try. Default: a hundredth of the first.")] = None,
    high: Annotated[float | None, typer.Option(help="Highest rate to try. Default: a thousand times the first.")] = None,
    max_probes: Annotated[int, typer.Option(min=1, help="Most rates tried.")] = 10,
    probe_seconds: Annotated[float | None, typer.Option(help="Longest probe. Default: 300, or what a slow rate needs. Longer ones come closer to the true peak.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every draw, instead of the profile's; each probe has one of its own.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the search. Default: runs/peak-DATE-TIME.")] = None,
    api_key: Annotated[str, typer.Option(envvar="TOOLKIT_API_KEY", help="Key for the target.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print peak.json instead of the table.")] = False,
) -> None:  # fmt: skip
    """Find the highest request rate whose SLOs hold, with a stated confidence, in at most ten probes.

    A probe ends as soon as it is decided; a rate that stays undecided counts as not held, so the peak is on the safe side.

    Exit codes: 0 a peak was found, 1 no rate held, 2 wrong usage, 3 nothing to load, 130 interrupted (what is known so far
    is printed and kept).

    Example: toolkit peak --profile text-only
    """
    from workloads.peak_report import PEAK_JSON, cells
    from workloads.peak_run import Asked, Told, run_peak
    from workloads.profile import load_profile
    from workloads.target import default_url

    screen = console(stderr=True)

    def begun(number: int, rate: float) -> None:
        screen.print(f"probe {number}: {rate:g}/s ...", highlight=False, markup=False)

    def done(probe: "Probe") -> None:
        _, _, requests, kept, interval, verdict, seconds, why = cells(probe)
        line = f"  {verdict}: kept {kept} ({interval}) of {requests} requests in {seconds} s; {why}"
        screen.print(line, highlight=False, markup=False, soft_wrap=True)

    overrides = {name: value for name, value in (("rate", rate), ("seed", seed)) if value is not None}
    folder = out or RUNS / f"peak-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    report = run_peak(
        load_profile(profile, overrides),
        url or default_url(RUNS),
        folder,
        Asked(objective, confidence, low, high, max_probes, probe_seconds, profile),
        model,
        api_key,
        Told(begun, done),
        RUNS,
    )
    if as_json:
        sys.stdout.write((folder / PEAK_JSON).read_text(encoding="utf-8"))
    else:
        _print(report)
        typer.echo(f"\nfolder: {folder}")
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    if report.found.peak is None:
        raise typer.Exit(FAILED)


def _print(report: "PeakReport") -> None:
    from rich import box
    from rich.table import Table

    from workloads.peak_report import COLUMNS, cells, headline, notes

    screen = console()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("verdict", "why") else "right")
    for probe in report.probes:
        table.add_row(*cells(probe))
    screen.print("\n".join(headline(report)), highlight=False, markup=False, soft_wrap=True)
    screen.print(table)
    screen.print("\n".join(notes(report)), highlight=False, markup=False, soft_wrap=True)
