"""`toolkit bench --web`, `--master` and `--worker`: the same load with locust around it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from toolkit.cli.console import FAILED, INTERRUPTED, RUNS

if TYPE_CHECKING:
    from workloads.bench import BenchResult
    from workloads.folders import Quota
    from workloads.profile import Profile

LOOPBACK = "127.0.0.1"
WORKER = "--worker"


class BareWorker(TyperGroup):
    """Lets `--worker` stand alone, for a master on this machine."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if WORKER in args:
            after = args.index(WORKER) + 1
            if after == len(args) or args[after].startswith("-"):
                args = [*args[:after], LOOPBACK, *args[after:]]
        return super().parse_args(ctx, args)


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a leading shell listens. web_port, master_port: None, not at all."""

    bind: str
    web_port: int | None
    master_port: int | None
    expect_workers: int


def lead(
    profile: "Profile",
    url: str,
    listen: Listen,
    out: Path | None,
    model: str,
    api_key: str,
    as_json: bool,
    quota: "Quota",
) -> NoReturn:
    """Run the load from here or from workers; each run prints its report. Exits as `toolkit bench` does.

    With a web UI, Ctrl-C between two runs is its ordinary end: exit 0 then.
    """
    from toolkit.cli.bench import Display, show
    from workloads.folders import rotate
    from workloads.locust.brief import Brief
    from workloads.locust.launch import Told
    from workloads.locust.launch import lead as run

    brief = Brief(
        role="local" if listen.master_port is None else "master",
        bind=listen.bind,
        web_port=listen.web_port,
        host=listen.bind,
        port=listen.master_port or 0,
        expect_workers=listen.expect_workers,
        out=str(out or ""),
        runs_dir=str(RUNS),
    )
    results: list[BenchResult] = []
    with Display() as display:

        def ended(result: "BenchResult") -> None:
            results.append(result)
            if out is None:
                rotate(RUNS, quota)
            if as_json:
                sys.stdout.write((result.folder / "report.json").read_text(encoding="utf-8"))
                sys.stdout.flush()
            else:
                show(result)

        told = Told(_say, display.hooks().on_progress, ended)
        code = run(profile, url, brief, told, model, api_key)
    _leave(code, results, listen.web_port is not None)


def _leave(code: int, results: "list[BenchResult]", web: bool) -> NoReturn:
    interrupted = any(result.summary.interrupted for result in results)
    if interrupted or (code == INTERRUPTED and not web):
        raise typer.Exit(INTERRUPTED)
    if any(result.summary.total.failures for result in results):
        raise typer.Exit(FAILED)
    raise typer.Exit(0 if code == INTERRUPTED else code)


def follow(address: str, *, leads: bool) -> NoReturn:
    """Be a worker until the master quits. Raises UsageFault for an address that is none, or for one that leads too."""
    from toolkit.core.errors import UsageFault
    from workloads.locust.brief import Brief
    from workloads.locust.launch import Told
    from workloads.locust.launch import follow as run

    if leads:
        raise UsageFault("--worker goes without --web and --master: those are for the process that leads.")
    host, _, port = address.partition(":")
    if port and not port.isdigit():
        raise UsageFault(f"--worker {address}: a host, or HOST:PORT.")
    raise typer.Exit(run(Brief(role="worker", host=host or LOOPBACK, port=int(port or 5557)), Told(_say)))


def _say(line: str) -> None:
    typer.echo(line, err=True)
