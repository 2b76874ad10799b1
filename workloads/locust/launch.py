"""A load run with locust around it, seen from outside: prepare it, start the shell, write the report of each run.

This process has neither gevent nor a load on its event loop. The shell is in a session of its own: Ctrl-C comes here
and is passed on once; a second one ends the shell at once.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from toolkit.core.errors import EnvironmentFault, UsageFault
from toolkit.core.plan import Plan
from workloads.bench import BenchResult, facts_of, served_models, write_report
from workloads.compose import compose_load
from workloads.driver import Progress
from workloads.folders import SAMPLES_FILE
from workloads.image_server import serving_images
from workloads.locust.brief import Brief
from workloads.locust.curve import stretches_of
from workloads.locust.split import Share, lost
from workloads.locust.task import Task
from workloads.profile import Profile, to_toml
from workloads.record import LoadSample
from workloads.report.summary import summarise
from workloads.target import base_url

SHELL = "workloads.locust.shell"
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Told:
    """Who is told what while a shell runs. on_line: a sentence. on_progress: where the run is. on_result: one ended."""

    on_line: Tell = lambda _: None
    on_progress: Callable[[Progress], None] = lambda _: None
    on_result: Callable[[BenchResult], None] = lambda _: None


def lead(profile: Profile, url: str, brief: Brief, told: Told, model: str = "", api_key: str = "") -> int:
    """Run a local shell or a master until it ends; each run of it leaves a folder with a report. The shell's exit code.

    brief: its role, addresses and folders; the rest is filled in. Raises EnvironmentFault when nothing answers at the
    target, locust is missing or an address is taken, UsageFault when the plan is empty or the folder is in use.
    """
    require_locust()
    target = base_url(url)
    served = asyncio.run(served_models(target, api_key))
    plan = compose_load(profile)
    if brief.out and (Path(brief.out) / SAMPLES_FILE).exists():
        raise UsageFault(f"{brief.out} holds a run already: name another folder with --out.")
    task = Task(
        target=target,
        model=model or served[0],
        api_key=api_key,
        extra_body=profile.extra_body,
        max_body_bytes=profile.max_body_bytes,
        request_timeout_s=profile.request_timeout_s,
        drain_s=profile.drain_s,
        returning=profile.returning.model_dump(mode="json"),
        seed=profile.seed,
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolkit-locust-")))
        files = folder / "plan.json", folder / "profile.toml"
        files[0].write_bytes(plan.to_json())
        files[1].write_text(to_toml(profile), encoding="utf-8")
        stack.enter_context(serving_images(plan, files[0], profile.image_server))
        brief = replace(
            brief,
            plan=str(files[0]),
            profile=str(files[1]),
            stretches=stretches_of(profile, plan),
            task=task,
        )
        told.on_line(f"loading {task.model} at {target}")

        def on_event(event: dict[str, Any]) -> None:
            match event["event"]:
                case "progress":
                    told.on_progress(_progress(event, len(plan.requests)))
                case "ended" if event["went"]:
                    told.on_progress(_progress(event, len(plan.requests)))
                    samples = pooled(Path(event["folder"]), plan, event["incomplete"])
                    facts = facts_of(profile, plan, event["target"], task.model, event["started_at"], served)
                    summary = summarise(
                        samples,
                        profile.slo.slos(),
                        event["window_s"],
                        max((sample.ended_s for sample in samples if sample.first), default=0.0),
                        event["interrupted"],
                        event["cpu_share"],
                    )
                    told.on_result(write_report(Path(event["folder"]), facts, summary))
                case _:
                    told.on_line(_sentence(event))

        return _shell(brief, on_event)


def follow(brief: Brief, told: Told) -> int:
    """Be a worker until the master quits. The shell's exit code. Raises EnvironmentFault when no master answers."""
    require_locust()
    told.on_line(f"looking for a master at {brief.host}:{brief.port}")
    return _shell(brief, lambda event: told.on_line(_sentence(event)))


def require_locust() -> None:
    """Raises EnvironmentFault where locust is not installed. Does not import it."""
    from importlib.util import find_spec

    if find_spec("locust") is None:
        raise EnvironmentFault("locust is not installed here: pip install 'mm-serving-toolkit[locust]'.")


def pooled(folder: Path, plan: Plan, incomplete: Sequence[Mapping[str, Any]]) -> tuple[LoadSample, ...]:
    """Every record of the run, in the plan's order; what no worker told of these shares is added to the file."""
    path = folder / SAMPLES_FILE
    with path.open("rb") as lines:
        samples = [LoadSample.from_dict(orjson.loads(line)) for line in lines]
    known = {sample.index for sample in samples}
    missing = [
        sample
        for gap in incomplete
        for sample in lost(plan, Share(gap["index"], gap["of"]), known, gap["window_s"])
    ]
    with path.open("ab") as file:
        file.writelines(orjson.dumps(s.to_dict(), option=orjson.OPT_APPEND_NEWLINE) for s in missing)
    return tuple(sorted([*samples, *missing], key=lambda sample: (sample.index, sample.attempt)))


def _shell(brief: Brief, on_event: Callable[[dict[str, Any]], None]) -> int:
    process = subprocess.Popen(
        [sys.executable, "-m", SHELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {"LOCUST_SKIP_URLLIB3_PATCH": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    failure = ""
    with process, _signals_to(process):
        process.stdin.write(brief.to_json())
        process.stdin.flush()  # left open: its end is the shell's
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "failed":
                failure = event["message"]
            on_event(event)
    if process.returncode == 1 and failure:
        raise EnvironmentFault(failure)
    return 1 if failure and not process.returncode else process.returncode


@contextmanager
def _signals_to(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Ctrl-C and SIGTERM are the shell's: the first ends it in order, the next at once."""
    heard = 0

    def pass_on(number: int, _: object) -> None:
        nonlocal heard
        heard += 1
        if heard == 1:
            process.send_signal(number)
        else:
            process.kill()  # its request core ends with it

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _progress(event: dict[str, Any], planned: int) -> Progress:
    done = event["samples"]
    return Progress(event["elapsed_s"], done, done, event["failed"], planned)


def _sentence(event: dict[str, Any]) -> str:
    match event["event"]:
        case "web":
            return f"web UI: {event['url']}  (start and stop the load there; Ctrl-C ends it)"
        case "listening":
            return f"master: {event['address']}"
        case "waiting":
            return f"workers: {event['workers']} of {event['wanted']}"
        case "connected":
            return "connected to the master"
        case "left":
            return (
                f"worker ended: {event['requests']} requests done in {event['runs']} run(s), {event['failed']} failed; "
                f"{event['reason']}"
            )
        case "started":
            return f"run {event['folder']}: {event['workers']} worker(s) prepare their requests"
        case "ended":
            return f"run {event['folder']}: ended before it began"
        case _:
            return str(event.get("message", event))
