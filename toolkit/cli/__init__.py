"""The `toolkit` command: composes the siblings, holds no logic.

A command module is added by one line in COMMANDS. It imports typer and the standard library only, and everything
else inside its function: `toolkit --help` must stay quick.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli import (
    admin,
    bench,
    config,
    doctor,
    experiment,
    peak,
    plan,
    request,
    serve,
    surge,
    transfer,
    version,
    workload,
)
from toolkit.cli.console import INTERRUPTED, complain, exit_code
from toolkit.core.errors import EnvironmentFault, ToolkitError

PACKAGES = ("toolkit", "serving", "workloads", "dashboards", "runbooks")
COMMANDS = (serve.serve, doctor.doctor, request.request, peak.peak, surge.surge, version.version)

app = typer.Typer(
    name="toolkit",
    help="Benchmark and operate multimodal serving on SGLang: prefill/decode disaggregation over Mooncake behind a "
    "preprocessing gateway.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if show_version:
        version.version()
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


for command in COMMANDS:
    app.command()(command)
bench.app.command()(transfer.transfer)
app.add_typer(admin.app, name="admin")
app.add_typer(bench.app, name="bench")
app.add_typer(config.app, name="config")
app.add_typer(experiment.app, name="experiment")
app.add_typer(plan.app, name="plan")
app.add_typer(workload.app, name="workload")


def one_root(packages: tuple[str, ...] = PACKAGES) -> Path:
    """The folder that all our packages come from.

    Raises EnvironmentFault when they do not come from one: other distributions own a `runbooks` or a `toolkit` too,
    and pip says nothing when it writes one over the other.
    """
    roots: dict[str, Path] = {}
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise EnvironmentFault(
                f"The package {name!r} is missing or empty here: install the toolkit again."
            )
        roots[name] = Path(spec.origin).resolve().parent.parent
    strangers = sorted(name for name, root in roots.items() if root != roots["toolkit"])
    if strangers:
        name = strangers[0]
        raise EnvironmentFault(
            f"The package {name!r} comes from {roots[name]}, not from {roots['toolkit']}: another distribution of "
            "that name is installed. Use an environment of its own (make install)."
        )
    return roots["toolkit"]


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the machine lacks something, 130 interrupted."""
    try:
        one_root()
        app()
    except ToolkitError as error:
        complain(error)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
