"""A worker's request core: starting it, telling it to go and to stop, reading its records. Runs under gevent.

The core is in a session of its own, so that Ctrl-C meets only us; it ends when its standard input closes, which the
kernel does for us however we end.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent
import orjson
from gevent import subprocess
from gevent.event import Event

from workloads.locust.task import GO, STOP, Task

MODULE = "workloads.locust.core"
STOP_WITHIN_S = 10.0  # open answers are cut off at once; what is left is writing and reading
log = logging.getLogger("locust.toolkit")


@dataclass(frozen=True, slots=True)
class Heard:
    """Whom the core's lines go to. on_sample: a record and its line. on_end: `ended`'s fields, or None if it died."""

    on_ready: Callable[[], None]
    on_sample: Callable[[dict[str, Any], bytes], None]
    on_end: Callable[[dict[str, Any] | None, str], None]


class Core:
    """One child, for one run."""

    def __init__(self, task: Task, plan: bytes, heard: Heard) -> None:
        self._heard = heard
        self._over = Event()
        self._ready = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._reader = gevent.spawn(self._read)
        self._writer = gevent.spawn(self._write, task.to_bytes(plan))

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def over(self) -> bool:
        return bool(self._over.is_set())

    def go(self) -> None:
        """Send from now on."""
        gevent.spawn(self._write, GO)

    def stop(self) -> None:
        """End the run in order; returns when every record was read, or after STOP_WITHIN_S, when it is killed.

        A core that still prepares has no record: it is killed at once.
        """
        if self._ready:
            self._write(STOP)
        if not self._over.wait(STOP_WITHIN_S if self._ready else 0):
            self._process.kill()
            self._over.wait(STOP_WITHIN_S)

    def _write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except (OSError, ValueError):
            log.debug("the request core has ended")  # its reader tells

    def _read(self) -> None:
        end: dict[str, Any] | None = None
        why = "the request core died"
        for line in self._process.stdout:
            record = orjson.loads(line)
            match record.get("event"):
                case None:
                    self._heard.on_sample(record, line)
                case "ready":
                    self._ready = True
                    self._heard.on_ready()
                case "ended":
                    end = record
                case "failed":
                    why = record["message"]
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._heard.on_end(end, "" if end is not None else why)
        self._over.set()
