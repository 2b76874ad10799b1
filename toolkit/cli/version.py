"""`toolkit version`."""

import typer


def version() -> None:
    """Print the toolkit's version and the SGLang version it drives."""
    from importlib.metadata import version as of

    typer.echo(f"mm-serving-toolkit {of('mm-serving-toolkit')} (drives sglang 0.5.23)")
