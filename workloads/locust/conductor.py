"""The master's part of a run: shares of the plan to the workers, one start for all, their records into one file.

The workers' clocks are not compared: each counts from when it heard GO, which on one network is the same moment to
within its delay. Runs under gevent, with a local runner too.
"""

import logging
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from io import BufferedWriter
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner

from toolkit.core.errors import ToolkitError
from toolkit.core.plan import Plan
from workloads.folders import SAMPLES_FILE, begin, release
from workloads.locust.messages import ENDED, GO, HELLO, READY, RUN, SAMPLES
from workloads.locust.split import Share, shares
from workloads.locust.task import Task

LEAD_S = 0.05  # a core's zero is so long after GO (driver.py)
LOOK_EVERY_S = 0.05
TELL_EVERY_S = 0.25
WAIT_FOR_ENDS_S = 15.0
log = logging.getLogger("locust.toolkit")


@dataclass(frozen=True, slots=True)
class Job:
    """What each start of the test runs. folder_of: the folder of the n-th run, from 1."""

    task: Task
    plan: Plan
    plan_json: bytes
    profile_toml: str
    folder_of: Callable[[int], Path]


@dataclass(slots=True)
class Run:
    """One start, until its last worker ended. went_at: on time.monotonic(), None before GO.

    samples: records by worker, attempts of those who came back included. first: planned requests of all; failed: of those.
    """

    number: int
    folder: Path
    target: str
    shares: dict[str, Share]
    file: BufferedWriter
    started_at: float
    ready: set[str] = field(default_factory=set)
    ended: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    went_at: float | None = None
    stopping: bool = False
    samples: Counter[str] = field(default_factory=Counter)
    first: int = 0
    failed: int = 0
    why: str = ""


class Conductor:
    """Runs the job whenever locust starts its test, and tells how it went."""

    def __init__(
        self,
        environment: Environment,
        runner: LocalRunner | MasterRunner,
        job: Job,
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        """tell: called with `started`, `progress` and `ended` events."""
        self._runner = runner
        self._job = job
        self._tell = tell
        self._runs = 0
        self._run: Run | None = None
        self._packed = zlib.compress(job.plan_json, 1)
        self._greeted: set[str] = set()
        self.finished = Event()  # a run has ended
        for message, listener in (
            (HELLO, self._on_hello),
            (READY, self._on_ready),
            (SAMPLES, self._on_samples),
            (ENDED, self._on_ended),
        ):
            self._runner.register_message(message, listener)
        environment.events.test_start.add_listener(self._on_start)
        environment.events.test_stopping.add_listener(self._on_stopping)
        environment.events.test_stop.add_listener(self._on_stop)

    # --- what the shape asks

    def elapsed_s(self) -> float:
        """Since the run's zero; below 0 before it. Infinite where there is nobody to run it."""
        run = self._run
        if run is None:
            return -1.0 if self.workers() else float("inf")
        return -1.0 if run.went_at is None else time.monotonic() - run.went_at

    def busy(self) -> bool:
        """Whether a worker has not ended yet."""
        return self._run is not None and bool(self._open(self._run))

    # --- what happens

    def _on_start(self, environment: Environment) -> None:
        self._runs += 1
        job, number, workers = self._job, self._runs, self.workers()
        folder = job.folder_of(number)
        try:
            begin(folder, job.profile_toml, job.plan_json)
        except (ToolkitError, OSError) as error:
            self._abandon(str(error))
            return
        run = self._run = Run(
            number=number,
            folder=folder,
            target=(environment.host or job.task.target).rstrip("/").removesuffix("/v1"),
            shares=dict(zip(workers, shares(job.plan, len(workers)), strict=False)),
            file=(folder / SAMPLES_FILE).open("wb"),
            started_at=time.time(),
        )
        self._tell({"event": "started", "folder": str(folder), "workers": len(run.shares)})
        gevent.spawn(self._conduct, run)

    def _conduct(self, run: Run) -> None:
        for worker, share in run.shares.items():
            task = replace(self._job.task, target=run.target, share_index=share.index, share_of=share.of)
            self._send(RUN, run, worker, task=asdict(task), plan=self._packed)
        while waited := [worker for worker in self._open(run) if worker not in run.ready]:
            log.debug("run %d waits for %s", run.number, waited)
            gevent.sleep(LOOK_EVERY_S)
        if self._run is not run or run.stopping:
            return
        if len(self._open(run)) < len(run.shares):  # some promises would be broken before the first request
            self._abandon(run.why or "a worker ended while it prepared its requests")
            return
        for worker in run.shares:
            self._send(GO, run, worker)
        run.went_at = time.monotonic() + LEAD_S
        while self._run is run and self._open(run):
            gevent.sleep(TELL_EVERY_S)
            self._tell(self._progress(run))

    def _abandon(self, why: str) -> None:
        log.error("the run is given up: %s", why)
        self._tell({"event": "failed", "message": why})
        gevent.spawn(self._runner.stop)
        if self._run is None:
            self.finished.set()

    def _on_hello(self, environment: Environment, msg: Any) -> None:  # noqa: ARG002 - locust's way to call
        self._greeted.add(msg.data["worker"])

    def _on_ready(self, environment: Environment, msg: Any) -> None:  # noqa: ARG002
        if (run := self._of(msg)) is not None:
            run.ready.add(msg.data["worker"])

    def _on_samples(self, environment: Environment, msg: Any) -> None:  # noqa: ARG002
        if (run := self._of(msg)) is not None:
            run.file.write(msg.data["lines"])
            run.file.flush()  # a crash loses what was not read yet, no more
            run.samples[msg.data["worker"]] += msg.data["count"]
            run.first += msg.data["first"]
            run.failed += msg.data["failed"]

    def _on_ended(self, environment: Environment, msg: Any) -> None:  # noqa: ARG002
        if (run := self._of(msg)) is not None:
            run.ended[msg.data["worker"]] = msg.data["ended"]
            run.why = run.why or msg.data["why"]

    def _on_stopping(self, environment: Environment) -> None:  # noqa: ARG002
        if self._run is not None:
            self._run.stopping = True

    def _on_stop(self, environment: Environment) -> None:  # noqa: ARG002
        run = self._run
        if run is None:
            return
        deadline = time.monotonic() + WAIT_FOR_ENDS_S
        while self._open(run) and time.monotonic() < deadline:
            gevent.sleep(LOOK_EVERY_S)
        self._run = None
        run.file.close()
        if run.went_at is None:
            release(run.folder)  # nothing was sent
        self._tell({**self._progress(run), **_ending(run)})
        self.finished.set()

    # --- who is there

    def workers(self) -> list[str]:
        """Those that are there and understand us; a plain locust worker does not."""
        if not isinstance(self._runner, MasterRunner):
            return sorted(self._greeted)
        there = [client.id for client in self._runner.clients.all if client.state != STATE_MISSING]
        return [worker for worker in there if worker in self._greeted]

    def _open(self, run: Run) -> list[str]:
        """Its workers that are still there and have not ended."""
        there = set(self.workers())
        return [worker for worker in run.shares if worker in there and worker not in run.ended]

    def _of(self, msg: Any) -> Run | None:
        run = self._run
        return run if run is not None and msg.data["run"] == run.number else None

    def _send(self, message: str, run: Run, worker: str, **data: Any) -> None:
        self._runner.send_message(message, {"run": run.number, **data}, worker)

    def _progress(self, run: Run) -> dict[str, Any]:
        elapsed_s = 0.0 if run.went_at is None else max(0.0, time.monotonic() - run.went_at)
        return {
            "event": "progress",
            "elapsed_s": elapsed_s,
            "samples": run.first,
            "failed": run.failed,
        }


def _ending(run: Run) -> dict[str, Any]:
    told = [ended for ended in run.ended.values() if ended is not None]
    elapsed_s = 0.0 if run.went_at is None else max(0.0, time.monotonic() - run.went_at)
    window_s = max((ended["window_s"] for ended in told), default=elapsed_s)
    return {
        "event": "ended",
        "folder": str(run.folder),
        "target": run.target,
        "started_at": run.started_at,
        "went": run.went_at is not None,
        "window_s": window_s,
        "interrupted": any(ended["interrupted"] for ended in told),
        "cpu_share": max((ended["cpu_share"] for ended in told), default=0.0),
        "incomplete": list(_incomplete(run, window_s)),
    }


def _incomplete(run: Run, window_s: float) -> Iterator[dict[str, Any]]:
    """Shares of which records are missing, with the window in which they were due."""
    for worker, share in run.shares.items():
        ended = run.ended.get(worker)
        if ended is None:
            yield {**asdict(share), "window_s": window_s}
        elif run.samples[worker] < ended["samples"]:
            yield {**asdict(share), "window_s": ended["window_s"]}
