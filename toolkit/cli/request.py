"""`toolkit request ID`: where one request's time went."""

from pathlib import Path
from typing import Annotated

import typer


def request(
    request_id: Annotated[
        str,
        typer.Argument(
            help="The x-request-id of an answer, or a unique beginning of it. `last`: the newest.",
            metavar="ID",
        ),
    ],
    run: Annotated[Path, typer.Option("--run", help="Run folder of `toolkit serve`.")] = Path("runs/latest"),
    json_out: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Show where one request's time went.

    Example: toolkit request last
    """
    from serving.trace import find, render

    sample = find(run / "journal", request_id)
    if json_out:
        import orjson

        typer.echo(orjson.dumps(sample.to_dict(), option=orjson.OPT_INDENT_2).decode())
        return
    typer.echo(render(sample))
