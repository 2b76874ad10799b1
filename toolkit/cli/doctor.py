"""`toolkit doctor`: what this machine has, and what is wrong with it."""

from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.console import FAILED, RUNS

IN_ALL_S, LEAST_S = 4.5, 1.5  # with the start of Python and the end of two processes under 6 s

if TYPE_CHECKING:
    from serving.doctor.facts import Generator, Transfer
    from serving.doctor.judge import Finding


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the facts and the findings as JSON.")
    ] = False,
    transfer: Annotated[bool, typer.Option(help="Measure Mooncake's transfers for a second.")] = True,
) -> None:
    """Look over this machine: versions, CPU, memory, GPUs, ports, image decoder, clocks, transfers, the running service.

    Each line is ok, a warning or a problem, with what to do. Exit codes: 0 no problem, 1 a problem.
    """
    import json
    import os
    import time
    from dataclasses import asdict, replace

    from serving.doctor.judge import findings, worst
    from serving.doctor.machine import facts

    begun = time.monotonic()
    # First: its own processes would count as load of the machine.
    measured = facts(RUNS, os.environ, _generator(), None)
    if transfer:
        left_s = IN_ALL_S - (time.monotonic() - begun)
        measured = replace(measured, transfer=_transfer(max(LEAST_S, left_s)))
    found = findings(measured)
    if as_json:
        document = {
            "version": 1,
            "worst": worst(found),
            "findings": [asdict(one) for one in found],
            "facts": asdict(measured),
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo("\n".join(_lines(found)))
    if worst(found) == "problem":
        raise typer.Exit(FAILED)


def _lines(found: "tuple[Finding, ...]") -> list[str]:
    width = max(len(one.topic) for one in found)
    lines = []
    for one in found:
        advice = f"\n{'':<{width + 11}}-> {one.do}" if one.do else ""
        lines.append(f"{one.level:<8} {one.topic:<{width}}  {one.text}{advice}")
    counts = {level: sum(one.level == level for one in found) for level in ("problem", "warning")}
    told = ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts.items() if count)
    return [*lines, "", told or "nothing is wrong"]


def _generator() -> "Generator | None":
    import os

    from serving.doctor.facts import Generator
    from workloads.own_error import cache_file, describe, last_check

    check = last_check(cache_file(os.environ))
    return None if check is None else Generator(check.honest, describe(check))


def _transfer(limit_s: float) -> "Transfer | None":
    from serving.config import EngineConfig
    from serving.doctor.transfer import short
    from serving.topology import engine_python
    from toolkit.core.errors import EnvironmentFault

    try:
        return short(engine_python(EngineConfig(), dry=False), limit_s)
    except EnvironmentFault:
        return None  # the line on the engine says so
