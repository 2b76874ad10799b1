"""`toolkit request ID`: where one request's time went."""

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.console import RUNS


def request(
    request_id: Annotated[
        str,
        typer.Argument(
            help="The x-request-id of an answer, or a unique beginning of it. `last`: the newest.",
            metavar="ID",
        ),
    ],
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", help="One run folder of `toolkit serve`. Without it: all in ./runs, the newest first."
        ),
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Show where one request's time went.

    Example: toolkit request last
    """
    from serving.trace import find, render, search

    folder, sample = search(RUNS, request_id) if run is None else (run, find(run, request_id))
    if run is None and folder != (RUNS / "latest").resolve():
        typer.echo(f"from an older run: {folder}", err=True)
    if json_out:
        import orjson

        typer.echo(orjson.dumps(sample.to_dict(), option=orjson.OPT_INDENT_2).decode())
        return
    typer.echo(render(sample))
