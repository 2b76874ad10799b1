"""What `toolkit serve` would start, as commands to read or to paste."""

import json
import shlex
from collections.abc import Mapping, Sequence

import typer

from serving.launcher import gateway_argv
from serving.topology import Plan


def show(plan: Plan, *, as_json: bool) -> None:
    """Every process with its environment, in start order."""
    for name, url, env, argv in rows(plan):
        if as_json:
            typer.echo(json.dumps({"name": name, "url": url, "env": dict(env), "argv": list(argv)}))
        else:
            typer.echo(f"# {name}: {url}\n{as_shell(env, argv)}\n")


Row = tuple[str, str, Mapping[str, str], Sequence[str]]


def rows(plan: Plan) -> list[Row]:
    """Name, URL, environment and command line; no command line for an engine that runs already."""
    started: list[Row] = [(one.name, one.endpoint.url, one.env, one.argv) for one in plan.launches]
    attached: list[Row] = [] if plan.launches else [(one.name, one.url, {}, ()) for one in plan.engines]
    run = plan.config.runs_dir / "serve-DATE-TIME"
    return [*started, *attached, ("gateway", plan.gateway_url, {}, gateway_argv(run))]


def as_shell(env: Mapping[str, str], argv: Sequence[str]) -> str:
    """One line that a shell runs as it stands; a remark for an engine that runs already."""
    if not argv:
        return "# runs already: nothing to start"
    assignments = [f"{key}={shlex.quote(value)}" for key, value in env.items()]
    return " ".join([*assignments, shlex.join(argv)])
