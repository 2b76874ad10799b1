"""What the check of a configuration found, as text and as JSON."""

import asyncio
import json
import os
from collections.abc import Iterator

import typer

from serving.check.ask import asked
from serving.check.gather import facts_of
from serving.check.rule import Finding, Report, Severity
from serving.check.table import RULES, check
from serving.topology import Plan
from toolkit.cli.console import FAILED
from toolkit.core.errors import UsageFault


def show(plan: Plan, *, as_json: bool) -> None:
    """Print everything. Exit code 1 when there is an error."""
    report = _report(plan)
    typer.echo(json.dumps(document(report), indent=2) if as_json else "\n".join(lines(report)))
    if report.of(Severity.ERROR):
        raise typer.Exit(FAILED)


def refuse(plan: Plan) -> None:
    """Before a start: raises UsageFault for errors; warnings are one line on stderr."""
    report = _report(plan)
    if errors := report.of(Severity.ERROR):
        told = "\n".join(line for error in errors for line in _one(error))
        raise UsageFault(
            f"this configuration would not serve:\n{told}\nNothing was started. `--check` tells everything, --no-check starts all the same."
        )
    if warnings := report.of(Severity.WARNING):
        names = ", ".join(dict.fromkeys(one.id for one in warnings))
        several = "s" if len(warnings) > 1 else ""
        typer.echo(
            f"{len(warnings)} warning{several}: {names} (what to do: the same command with --check)", err=True
        )


def _report(plan: Plan) -> Report:
    told = asyncio.run(asked(plan.engines)) if plan.config.engine.attached else {}
    return check(facts_of(plan, os.environ, told))


def document(report: Report) -> dict[str, object]:
    """Stable keys: version, worst, findings (id, severity, where, what, why, source, fix), together, unchecked (reason, rules),
    rules."""
    worst = next((str(severity) for severity in Severity if report.of(severity)), "ok")
    return {
        "version": 1,
        "worst": worst,
        "findings": [
            {
                "id": one.id,
                "severity": str(one.severity),
                "where": list(one.where),
                "what": one.what,
                "why": one.why,
                "source": list(one.source),
                "fix": list(one.fix),
            }
            for one in report.findings
        ],
        "together": list(report.together),
        "unchecked": [{"reason": one.reason, "rules": list(one.rules)} for one in report.unchecked],
        "rules": len(RULES),
    }


def lines(report: Report) -> list[str]:
    """For people."""
    told = [line for finding in report.findings for line in (*_one(finding), "")]
    for one in report.unchecked:
        told += [f"not looked at: {', '.join(one.rules)}", f"  because {one.reason}", ""]
    if len(report.together) > 1:
        told += ["all errors and warnings at once:", *(f"  {line}" for line in report.together), ""]
    return [*told, counted(report) or "nothing is wrong"]


def counted(report: Report) -> str:
    """As `1 error, 2 warnings`; empty when nothing was found."""
    counts = {str(severity): len(report.of(severity)) for severity in Severity}
    return ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count)


def _one(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity}  {finding.id}  {', '.join(finding.where)}: {finding.what}"
    yield f"  why  {finding.why}"
    yield f"  see  {', '.join(finding.source)}"
    yield from (f"  fix  {line}" for line in finding.fix)
