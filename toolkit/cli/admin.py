"""`toolkit admin`: look at and change a running gateway."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.console import RUNS

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(
    help="Look at and change a running gateway. Every change is written down and can be undone.",
    no_args_is_help=True,
)

Run = Annotated[Path, typer.Option("--run", help="Run folder of the `toolkit serve` to change.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why; kept with the change.")]
For = Annotated[
    str | None, typer.Option("--for", metavar="SECONDS", help="Taken back by itself after so many seconds.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Also where nothing would be left to give work to, or others changed it since."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LATEST = RUNS / "latest"
POLL_S = 0.25

NEXT = {
    "change_conflict": "`toolkit admin state` tells what is so; --force does it all the same.",
    "nothing_left_to_serve": "Bring another of them back first, or --force.",
    "unauthorized": "The token is that of the run folder's admin.json, or TOOLKIT_ADMIN_TOKEN.",
    "change_not_recorded": "Make room on the run folder's disk.",
    "not_found": "`toolkit admin changes` lists them.",
}
"""What to do about a refusal, by its code, in the words of the command line."""


@app.command()
def state(run: Run = LATEST, as_json: Json = False) -> None:
    """Show requests, engines, and every setting that can be changed while the gateway runs.

    Example: toolkit admin state --json
    """
    from toolkit.cli.admin_page import state_page

    document = ask(run, "GET", "/state")
    show(document, state_page(document), as_json=as_json)


@app.command(name="set")
def set_(
    assignments: Annotated[
        list[str], typer.Argument(help="KEY=VALUE, as in serve.toml; all of them or none.")
    ],
    run: Run = LATEST,
    reason: Reason = "",
    for_s: For = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Change settings at once; `toolkit admin state` lists them.

    Example: toolkit admin set schedule.max_in_flight=32 batch.weight=0.1 --reason "surge" --for 600
    """
    from toolkit.core.config import parse_assignment
    from toolkit.core.errors import UsageFault

    if wrong := [text for text in assignments if not text.partition("=")[0].strip() or "=" not in text]:
        raise UsageFault(f"{wrong[0]!r}: write it as KEY=VALUE, as schedule.max_in_flight=32.")
    change(run, dict(map(parse_assignment, assignments)), reason, for_s, force=force, as_json=as_json)


@app.command()
def shed(
    classes: Annotated[list[str], typer.Argument(help="SLO classes (batch) or workload classes (high_res).")],
    off: Annotated[bool, typer.Option("--off", help="Take them again.")] = False,
    run: Run = LATEST,
    reason: Reason = "",
    for_s: For = None,
    as_json: Json = False,
) -> None:
    """Refuse new requests of some classes (429 `shed`, with Retry-After); those inside go on.

    Example: toolkit admin shed batch high_res --for 600 --reason "decode-1 is down"
    """
    change(run, {f"shed.{one}": not off for one in classes}, reason, for_s, force=False, as_json=as_json)


@app.command()
def drain(
    engines: Annotated[list[str], typer.Argument(help="Names of engines, as decode-1.")],
    wait_s: Annotated[float, typer.Option("--wait", metavar="SECONDS", help="Longest wait until they have no requests left.")] = 0.0,
    run: Run = LATEST,
    reason: Reason = "",
    for_s: For = None,
    force: Force = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Give engines nothing new; what they have runs to its end. Exit code 1: with --wait, requests were left.

    Example: toolkit admin drain decode-1 --wait 300 --reason "new driver"
    """
    change(
        run, {f"instance.{one}.drained": True for one in engines}, reason, for_s, force=force, as_json=as_json
    )
    if wait_s > 0:
        until_empty(run, engines, wait_s)
        if not as_json:
            has = "has" if len(engines) == 1 else "have"
            typer.echo(f"{', '.join(engines)} {has} no request left")


@app.command()
def undrain(
    engines: Annotated[list[str], typer.Argument(help="Names of engines, as decode-1.")],
    run: Run = LATEST,
    reason: Reason = "",
    as_json: Json = False,
) -> None:
    """Give engines new requests again.

    Example: toolkit admin undrain decode-1
    """
    change(
        run, {f"instance.{one}.drained": False for one in engines}, reason, None, force=False, as_json=as_json
    )


@app.command()
def weight(
    engine: Annotated[str, typer.Argument(help="Name of an engine, as decode-1.")],
    value: Annotated[
        float, typer.Argument(help="Its part of the work beside others of its role; 1 as configured.")
    ],
    run: Run = LATEST,
    reason: Reason = "",
    for_s: For = None,
    as_json: Json = False,
) -> None:
    """Give an engine more or less of the work than others of its role.

    Example: toolkit admin weight decode-1 0.5
    """
    change(run, {f"instance.{engine}.weight": value}, reason, for_s, force=False, as_json=as_json)


@app.command()
def changes(run: Run = LATEST, as_json: Json = False) -> None:
    """List who changed what, when and why, newest first.

    Example: toolkit admin changes
    """
    from toolkit.cli.admin_page import change_line

    document = ask(run, "GET", "/changes")
    lines = [change_line(one) for one in document["changes"]] or ["nothing was changed"]
    show(document, "\n".join([whose(run, document), *lines]), as_json=as_json)


@app.command()
def undo(
    number: Annotated[int, typer.Argument(help="Number of the change, as `toolkit admin changes` lists it.", metavar="ID")],
    run: Run = LATEST,
    reason: Reason = "",
    force: Force = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Take a change back. Refused where a value was changed again since, unless forced.

    Example: toolkit admin undo 3
    """
    from toolkit.cli.admin_page import change_line

    document = ask(run, "POST", f"/changes/{number}/undo", {"reason": reason, "force": force})
    show(document, f"{whose(run, document)}\n{change_line(document['change'])}", as_json=as_json)


def change(
    run: Path, values: "Mapping[str, Any]", reason: str, for_s: str | None, *, force: bool, as_json: bool
) -> None:
    """Ask for these values, and show the change."""
    from toolkit.cli.admin_page import change_line

    body = {"set": values, "reason": reason, "for_s": seconds(for_s), "force": force}
    document = ask(run, "POST", "/changes", body)
    made = document["change"]
    told = [change_line(made) if made else "it is so already: nothing was changed"]
    told += [f"warning: {one}" for one in document.get("warnings", [])]
    show(document, "\n".join([whose(run, document), *told]), as_json=as_json)


def seconds(text: str | None) -> float | None:
    """Raises UsageFault for what is no time."""
    from toolkit.core.admin import LONGEST_S
    from toolkit.core.errors import UsageFault

    try:
        if text is None or 0 < (value := float(text)) <= LONGEST_S:
            return None if text is None else value
    except ValueError:
        pass
    raise UsageFault(f"--for {text}: give seconds above 0 and at most 30 days, as --for 600 for ten minutes.")


def whose(run: Path, document: "Mapping[str, Any]") -> str:
    """Which service it is, and that it is not the one that was started last."""
    name = run.resolve().name
    if run == LATEST:
        newest = max((path.name for path in run.parent.glob("serve-*")), default=name)
        if newest > name:
            typer.echo(f"{run} is {name}; {newest} was started after it: --run chooses.", err=True)
    return f"{document['gateway_url']}  {name}"


def until_empty(run: Path, engines: list[str], wait_s: float) -> None:
    """Wait until no request is left on these engines. Raises ToolkitError when that takes too long."""
    import time

    from toolkit.core.errors import ToolkitError

    ends = time.monotonic() + wait_s
    while True:
        found = ask(run, "GET", "/state")["instances"]
        left = {one["name"]: one["requests"] for one in found if one["name"] in engines and one["requests"]}
        if not left:
            return
        if time.monotonic() >= ends:
            told = ", ".join(f"{count} on {name}" for name, count in left.items())
            raise ToolkitError(f"Requests were left after {wait_s:g} s: {told}. They stay drained.")
        time.sleep(POLL_S)


def ask(run: Path, method: str, path: str, body: "Mapping[str, Any] | None" = None) -> dict[str, Any]:
    """One call. What the gateway calls a wrong request is a wrong command line. Raises ToolkitError."""
    from toolkit.core.admin import Door, Refused, call
    from toolkit.core.errors import EnvironmentFault, ToolkitError, UsageFault

    if run == LATEST and not run.exists():
        raise EnvironmentFault(
            f"{run} is not there: no service was started from this folder. --run names the run folder of one."
        )
    try:
        return call(Door.read(run), method, path, body)
    except Refused as error:
        told = f"{error.message} {NEXT.get(error.told_code, '')}".strip()
        raise (UsageFault if error.http_status in (400, 404) else ToolkitError)(told) from error


def show(document: "Mapping[str, Any]", text: str, *, as_json: bool) -> None:
    import json

    typer.echo(json.dumps(document, indent=2) if as_json else text)
