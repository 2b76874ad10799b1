"""The request core as a child: our driver and client on uvloop, with one share of a plan.

    python -m workloads.locust.core

It reads its task from standard input (one line of JSON, then the plan's bytes), prepares the bodies and says `ready`;
at `go` it sends, each request at its own deadline; `stop` ends the run early and in order. Until it is ready it may be
killed. It ends with its parent:
where standard input closes before the run is over, the process is gone at once.

Standard output carries JSON lines: records as in samples.jsonl, and {"event": ...} between them.
"""

import asyncio
import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from io import FileIO
from typing import Any

import orjson

from toolkit.core.clock import SystemClock
from toolkit.core.errors import ToolkitError
from toolkit.core.http.client import HttpClient
from toolkit.core.plan import Plan
from workloads.client import MAX_IDLE, ChatCaller
from workloads.driver import Drive, Driver, first_of
from workloads.locust.task import GO, STOP, Task, read_task
from workloads.prepare import Prepared, prepare
from workloads.returning import Returning, Returns


class _Orders(threading.Thread):
    """Listens to the parent. A thread, since preparing occupies the main one; it ends the process with its parent."""

    def __init__(self, source: FileIO) -> None:
        super().__init__(name="orders", daemon=True)
        self._source = source
        self._lock = threading.Lock()
        self._heard: set[bytes] = set()
        self._listeners: dict[bytes, Callable[[], object]] = {}

    def run(self) -> None:
        while line := self._source.readline():
            with self._lock:
                self._heard.add(line)
                listener = self._listeners.get(line)
            if listener is not None:
                listener()
        os._exit(1)  # the parent is gone: nothing may be sent any more

    def on(self, order: bytes, listener: Callable[[], object]) -> None:
        """Call back, from the thread, when it is heard; at once, when it was."""
        with self._lock:
            self._listeners[order] = listener
            heard = order in self._heard
        if heard:
            listener()


def main() -> int:
    """The child's whole life. Exit codes: 0 the run ended, 1 it could not be made (an event says why)."""
    import uvloop

    source = FileIO(
        0, closefd=False
    )  # raw: a thread that waits in a buffered one would hold its lock at exit
    try:
        task, plan = read_task(source)
    except EOFError:
        return 1
    except ToolkitError as error:
        return _failed(error)
    orders = _Orders(source)
    orders.start()
    try:
        prepared = prepare(
            plan,
            task.model,
            task.extra_body,
            task.max_body_bytes,
            task.api_key,
            only=task.share.has,
        )
    except ToolkitError as error:
        return _failed(error)
    uvloop.run(_drive(task, plan, prepared, orders))
    return 0


async def _drive(task: Task, plan: Plan, prepared: tuple[Prepared, ...], orders: _Orders) -> None:
    clock = SystemClock()
    client = HttpClient(clock=clock.monotonic, max_idle_per_host=MAX_IDLE)
    caller = ChatCaller(client, task.target, clock, task.request_timeout_s)
    caller.build(prepared)
    out = _Out()
    driver = Driver(
        prepared,
        caller,
        clock,
        plan.duration_s,
        task.drain_s,
        on_sample=lambda sample: out.append(sample.to_dict()),
        concurrency=task.share.concurrency(plan.concurrency),
        comes_back=Returns(Returning.model_validate(task.returning), task.seed).at_s,
    )
    loop = asyncio.get_running_loop()
    go, stop = asyncio.Event(), asyncio.Event()
    orders.on(GO, lambda: loop.call_soon_threadsafe(go.set))
    orders.on(STOP, lambda: loop.call_soon_threadsafe(stop.set))
    gc.collect()
    gc.freeze()  # bodies live to the end: a collector that walks them would delay tokens
    out.append({"event": "ready", "requests": len(prepared)})
    await first_of(go, stop)
    cpu, began = time.process_time(), time.monotonic()
    drive = await driver.run(stop)
    cpu_share = (time.process_time() - cpu) / max(1e-9, time.monotonic() - began)
    out.append(_ended(drive, cpu_share))
    await asyncio.to_thread(out.close)
    await client.close()


def _ended(drive: Drive, cpu_share: float) -> dict[str, Any]:
    return {
        "event": "ended",
        "samples": len(drive.samples),
        "window_s": drive.window_s,
        "ended_s": drive.ended_s,
        "interrupted": drive.interrupted,
        "cpu_share": cpu_share,
    }


class _Out(threading.Thread):
    """Standard output, written by a thread: the loop never waits for the parent to read."""

    def __init__(self) -> None:
        super().__init__(name="out", daemon=True)
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.start()

    def append(self, line: dict[str, Any]) -> None:
        """Queue one line. Never blocks."""
        self._queue.put(line)

    def close(self) -> None:
        """Write what is queued, then stop."""
        self._queue.put(None)
        self.join()

    def run(self) -> None:
        while (line := self._queue.get()) is not None:
            _write(line)


def _write(line: dict[str, Any]) -> None:
    try:
        sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(1)  # nobody reads: the parent is gone


def _failed(error: ToolkitError) -> int:
    _write({"event": "failed", "message": error.message})
    return 1


if __name__ == "__main__":
    sys.exit(main())
