"""`toolkit config`: the effective configuration, and what can be configured."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Show the configuration of `toolkit serve`.", no_args_is_help=True)


@app.command()
def show(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="A serve.toml.")] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", help="One value, as engine.tp=2. May be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of TOML.")] = False,
) -> None:  # fmt: skip
    """Print the effective configuration with every default; the output is a valid serve.toml.

    Example: toolkit config show --set gateway.port=9000 > serve.toml
    """
    from serving.config import ServeConfig
    from toolkit.cli.toml import to_toml
    from toolkit.core.config import load

    effective = load(ServeConfig, config, assignments or ())
    typer.echo(effective.model_dump_json(indent=2) if as_json else to_toml(effective).rstrip())


@app.command()
def schema() -> None:
    """Print the JSON schema of serve.toml."""
    import json

    from serving.config import ServeConfig

    typer.echo(json.dumps(ServeConfig.model_json_schema(), indent=2))
