"""`toolkit bench`: load a service and print what it kept of its promises."""

import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.bench_locust import LOOPBACK, BareWorker
from toolkit.cli.console import FAILED, INTERRUPTED, RUNS, console

if TYPE_CHECKING:
    from rich.table import Table

    from workloads.bench import BenchResult, Hooks

app = typer.Typer(cls=BareWorker, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def bench(
    profile: Annotated[str, typer.Option("--profile", "-p", help="A built-in profile's name, or a .toml file.")] = "smoke",
    url: Annotated[str, typer.Option("--url", "--target", help="Base URL of an OpenAI-compatible server. Default: the service started last, else http://127.0.0.1:8000.")] = "",
    model: Annotated[str, typer.Option(help="Model to ask for. Default: the first that the target lists.")] = "",
    rate: Annotated[float | None, typer.Option(help="Requests per second, instead of the profile's.")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds of load, instead of the profile's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every draw, instead of the profile's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: runs/bench-DATE-TIME.")] = None,
    api_key: Annotated[str, typer.Option(envvar="TOOLKIT_API_KEY", help="Key for the target.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json instead of the table.")] = False,
    scrape: Annotated[list[str] | None, typer.Option(help="A further URL whose /metrics are kept beside the samples; may be repeated.")] = None,
    scrape_every: Annotated[float, typer.Option(min=0, max=5, help="Seconds between two pages of /metrics; 0: none.")] = 1.0,
    keep_runs: Annotated[int, typer.Option(min=1, help="Most folders bench-* kept in runs; older ones are deleted.")] = 50,
    keep_gb: Annotated[float, typer.Option(min=0, max=1e6, help="Most that folders bench-* in runs may take together.")] = 5.0,
    self_check: Annotated[bool, typer.Option("--self-check", help="Measure the load generator's own error instead, at --rate or at rising rates.")] = False,
    web: Annotated[bool, typer.Option("--web", help="Open locust's web UI; the load is started and stopped there. Also for a --master.")] = False,
    web_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the web UI; 0: any free one.")] = 8089,
    master: Annotated[bool, typer.Option("--master", help="Load from several workers, by locust's runner; starts when they are there, or in the web UI.")] = False,
    expect_workers: Annotated[int, typer.Option(min=1, help="Workers a --master waits for.")] = 1,
    worker: Annotated[str, typer.Option(metavar="[HOST[:PORT]]", help="Be a worker of the master there; 127.0.0.1 where none is named. Its profile is the master's.")] = "",
    bind: Annotated[str, typer.Option(help="Address on which the web UI and a --master listen. Neither asks who calls.")] = LOOPBACK,
    master_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the --master; 0: any free one.")] = 5557,
    context: typer.Context = None,  # type: ignore[assignment] # none where it is called as a function
) -> None:  # fmt: skip
    """Send a seeded mix of text and image requests at a fixed rate, and report TTFT, ITL and SLO attainment per class.

    Exit codes: 0 every request completed, 1 some failed (with --self-check: the generator is not honest at that rate),
    2 wrong usage, 3 nothing to load, 130 interrupted.
    """
    if context is not None and context.invoked_subcommand is not None:
        return
    if self_check:
        _self_check(rate, duration, seed, as_json)
        return
    if worker:
        from toolkit.cli.bench_locust import follow

        follow(worker, leads=web or master)
    from workloads.bench import Scraping, run_bench
    from workloads.folders import Quota, rotate
    from workloads.profile import load_profile
    from workloads.target import default_url

    asked = {"rate": rate, "duration_s": duration, "seed": seed}
    chosen = load_profile(profile, {key: value for key, value in asked.items() if value is not None})
    if web or master:
        from toolkit.cli.bench_locust import Listen, lead

        listen = Listen(bind, web_port if web else None, master_port if master else None, expect_workers)
        lead(
            chosen,
            url or default_url(RUNS),
            listen,
            out,
            model,
            api_key,
            as_json,
            Quota(keep_runs, int(keep_gb * 1e9)),
        )
    folder = out or RUNS / f"bench-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    with Display() as display:
        result = run_bench(
            chosen,
            url or default_url(RUNS),
            folder,
            model,
            api_key,
            display.hooks(),
            Scraping(scrape_every, tuple(scrape or ()), RUNS),
        )
    if out is None:
        rotate(RUNS, Quota(keep_runs, int(keep_gb * 1e9)))
    if as_json:
        sys.stdout.write((folder / "report.json").read_text(encoding="utf-8"))
    else:
        show(result)
    if result.summary.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.summary.total.failures:
        raise typer.Exit(FAILED)


class Display:
    """A progress bar on stderr; nothing where that is no terminal."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        screen = console(stderr=True)
        columns = (TextColumn("{task.description:<9}"), BarColumn(), TextColumn("{task.fields[note]}"))
        # Drawn when told to: a refresh thread would compete with the generator for the interpreter.
        self._bars = Progress(*columns, console=screen, disable=not screen.is_terminal, auto_refresh=False)
        self._preparing = self._bars.add_task("preparing", note="", visible=False)
        self._loading = self._bars.add_task("loading", note="", visible=False)

    def __enter__(self) -> "Display":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def hooks(self) -> "Hooks":
        from workloads.bench import Hooks

        return Hooks(on_target=self._target, on_prepared=self._prepared, on_progress=self._progress)

    def _target(self, url: str, model: str) -> None:
        self._bars.console.print(f"loading {model} at {url}", highlight=False, markup=False)

    def _prepared(self, done: int, planned: int) -> None:
        self._draw(self._preparing, done, planned, f"{done}/{planned} requests")

    def _progress(self, progress: Any) -> None:
        note = f"{progress.elapsed_s:.0f} s, sent {progress.sent}/{progress.planned}, ended {progress.ended}, failed {progress.failed}"
        self._draw(self._loading, progress.ended, progress.planned, note)

    def _draw(self, bar: Any, done: int, total: int, note: str) -> None:
        self._bars.update(bar, completed=done, total=total, note=note, visible=True)
        if self._bars.live.is_started and not self._bars.disable:
            self._bars.refresh()


def show(result: "BenchResult") -> None:
    from rich import box
    from rich.table import Table

    from workloads.report.render import (
        LEVEL_COLUMNS,
        MEASURES,
        cells,
        headline,
        level_cells,
        notes,
        remarks,
    )

    # A column per class: that fits a terminal of 80 columns, a row per class does not.
    groups = result.summary.every
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("")
    for group in groups:
        table.add_column(group.name, justify="right")
    for measure, *row in zip(MEASURES, *(cells(group) for group in groups), strict=True):
        table.add_row(measure, *row)
    screen = console()
    above = headline(result.facts, result.summary)
    below = (
        *remarks(result.facts, result.summary, result.beside),
        "",
        *notes(result.facts, result.summary),
        "",
        f"run folder: {result.folder}",
    )
    screen.print(above, highlight=False, markup=False, soft_wrap=True)
    screen.print(table)
    if result.beside.levels:
        screen.print(_table(LEVEL_COLUMNS, map(level_cells, result.beside.levels)))
    screen.print("\n".join(below), highlight=False, markup=False, soft_wrap=True)


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> "Table":
    """The first column to the left, numbers to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _self_check(rate: float | None, duration: float | None, seed: int | None, as_json: bool) -> None:
    import json
    import os

    from workloads.own_error import COLUMNS, cache_file, cells, describe, keep, limits
    from workloads.selfcheck import DURATION_S, self_check

    results = self_check(rate, duration or DURATION_S, 1 if seed is None else seed)
    best = keep(results, cache_file(os.environ))
    if as_json:
        sys.stdout.write(json.dumps([result.to_dict() for result in results], indent=2) + "\n")
    else:
        screen = console()
        rows = zip(COLUMNS, *map(cells, results), strict=True)  # a column per rate fits a terminal
        screen.print(_table(("", *("" for _ in results)), rows))
        screen.print("\n".join((limits(), describe(best))), highlight=False, markup=False, soft_wrap=True)
    if not results[0].honest:
        raise typer.Exit(FAILED)
