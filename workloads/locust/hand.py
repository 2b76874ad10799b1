"""The worker's part of a run: a request core per run, its records to locust's statistics and to the master.

With a local runner the same messages go to the same process. Runs under gevent.
"""

import logging
import zlib
from typing import Any

import gevent
from locust.env import Environment
from locust.runners import LocalRunner, WorkerRunner

from workloads.locust.child import Core, Heard
from workloads.locust.entries import entries
from workloads.locust.messages import ENDED, GO, HELLO, READY, RUN, SAMPLES
from workloads.locust.task import Task

SHIP_EVERY_S = 0.25
log = logging.getLogger("locust.toolkit")


class Hand:
    """Does what the master says, on one worker."""

    def __init__(self, environment: Environment, runner: LocalRunner | WorkerRunner) -> None:
        self._environment = environment
        self._runner = runner
        self.runs = self.requests = self.failed = 0  # of this worker's whole life, planned requests
        self._run = 0
        self._core: Core | None = None
        self._lines: list[bytes] = []
        self._first = 0  # of the lines: planned requests
        self._failed = 0  # of those
        self._runner.register_message(RUN, self._on_run)
        self._runner.register_message(GO, self._on_go)
        environment.events.test_stopping.add_listener(self._on_stopping)
        self._send(HELLO, 0, {})

    def _on_run(self, environment: Environment, msg: Any) -> None:  # noqa: ARG002 - locust's way to call
        self.stop()
        number = self._run = msg.data["run"]
        task, plan = Task(**msg.data["task"]), zlib.decompress(msg.data["plan"])
        heard = Heard(
            on_ready=lambda: self._send(READY, number, {}),
            on_sample=self._on_sample,
            on_end=lambda ended, why: self._on_end(number, ended, why),
        )
        self._core = Core(task, plan, heard)
        self.runs += 1
        log.info("run %d: request core %d prepares", number, self._core.pid)
        gevent.spawn(self._ship_while, self._core, number)

    def _on_go(self, environment: Environment, msg: Any) -> None:  # noqa: ARG002
        if self._core is not None and msg.data["run"] == self._run:
            self._core.go()

    def _on_stopping(self, environment: Environment) -> None:  # noqa: ARG002
        self.stop()

    def stop(self) -> None:
        """End the run under way in order; when this returns, its records are on their way to the master."""
        if self._core is not None and not self._core.over:
            self._core.stop()

    def _on_sample(self, record: dict[str, Any], line: bytes) -> None:
        self._lines.append(line)
        if not record["attempt"]:
            failed = record["outcome"] != "completed"
            self._first += 1
            self._failed += failed
            self.requests += 1
            self.failed += failed
        for entry in entries(record):
            self._environment.events.request.fire(
                request_type=entry.request_type,
                name=entry.name,
                response_time=entry.response_time,
                response_length=entry.response_length,
                exception=entry.exception,
                context={},
            )

    def _on_end(self, number: int, ended: dict[str, Any] | None, why: str) -> None:
        self._ship(number)
        self._send(ENDED, number, {"ended": ended, "why": why})

    def _ship_while(self, core: Core, number: int) -> None:
        while not core.over:
            gevent.sleep(SHIP_EVERY_S)
            self._ship(number)

    def _ship(self, number: int) -> None:
        if self._lines:
            data = {
                "lines": b"".join(self._lines),
                "count": len(self._lines),
                "first": self._first,
                "failed": self._failed,
            }
            self._lines, self._first, self._failed = [], 0, 0
            self._send(SAMPLES, number, data)

    def _send(self, message: str, number: int, data: dict[str, Any]) -> None:
        self._runner.send_message(message, {"run": number, "worker": self._runner.client_id, **data})
