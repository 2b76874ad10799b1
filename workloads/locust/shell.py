"""locust with our load inside: a local runner, a master or a worker, with or without its web UI.

    python -m workloads.locust.shell

Started by launch.py. One line of JSON on standard input says what to be (brief.py); the shell ends in order when
standard input closes, on SIGINT and on SIGTERM. Standard output carries events, a JSON object a line. Its process has
gevent's sockets and threads, and no event loop of asyncio.
"""

import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event
from gevent.fileobject import FileObject
from locust import User, task
from locust.env import Environment
from locust.log import setup_logging
from locust.stats import stats_history

from toolkit.core.plan import Plan
from workloads.locust.brief import Brief
from workloads.locust.conductor import Conductor, Job
from workloads.locust.hand import Hand
from workloads.locust.shape import PlanShape

LOOK_EVERY_S = 0.1
START_WITHIN_S = 10.0
MASTER_WITHIN_S = 15.0
"""Locust itself would look for a master for five minutes."""
log = logging.getLogger("locust.toolkit")


class Planned(User):
    """One request per second of intended rate. It only makes locust's chart: the request core sends."""

    @task
    def wait(self) -> None:
        gevent.sleep(3600)


def main() -> int:
    """The shell's whole life. Exit codes: 0 ended as asked, 1 not (an event says why), 130 interrupted."""
    orders = FileObject(os.dup(0), "rb")
    brief = Brief.from_json(orders.readline())
    over, interrupted = Event(), Event()

    def interrupt() -> None:
        interrupted.set()
        over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, interrupt)
    gevent.spawn(orders.read).link(lambda _: interrupt())
    setup_logging(brief.log_level)
    code = _work(brief, over, interrupted) if brief.role == "worker" else _lead(brief, over)
    return 130 if interrupted.is_set() else code


def tell(event: dict[str, Any]) -> None:
    """To launch.py."""
    try:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        log.debug("nobody listens any more")


def _work(brief: Brief, over: Event, interrupted: Event) -> int:
    """A worker, until its master says quit."""
    environment = Environment(user_classes=[Planned])
    hands: list[Hand] = []
    connected = Event()

    def connect() -> None:
        runner = environment.create_worker_runner(brief.host, brief.port)
        hands.append(Hand(environment, runner))
        connected.set()
        tell({"event": "connected"})
        runner.greenlet.join()
        over.set()

    connecting = gevent.spawn(connect)
    connecting.link_exception(lambda _: over.set())
    gevent.wait([connected, over], timeout=MASTER_WITHIN_S, count=1)
    if connected.is_set():
        over.wait()
    runner: Any = environment.runner
    if runner is None or not runner.connected:
        where = f"{brief.host}:{brief.port}"
        tell(
            {
                "event": "failed",
                "message": f"no master answers at {where}: start `toolkit bench --master` there first",
            }
        )
        return 1
    runner.stop()
    environment.events.quitting.fire(environment=environment, reverse=True)
    runner.quit()
    reason = "interrupted" if interrupted.is_set() else "the master quit or went silent"
    for hand in hands:
        counts = {"runs": hand.runs, "requests": hand.requests, "failed": hand.failed}
        tell({"event": "left", "reason": reason, **counts})
    return 0


def _lead(brief: Brief, over: Event) -> int:
    """A local runner or a master, until its run or its user ends it."""
    plan_json = Path(brief.plan).read_bytes()
    plan = Plan.from_json(plan_json)
    job = Job(brief.task, plan, plan_json, Path(brief.profile).read_text(encoding="utf-8"), brief.folder)
    shape = PlanShape(brief.stretches)
    environment = Environment(
        user_classes=[Planned], shape_class=shape, host=brief.task.target, locustfile=plan.name
    )
    if brief.role == "master":
        try:
            runner: Any = environment.create_master_runner(brief.host, brief.port)
        except (Exception, SystemExit) as error:
            tell({"event": "failed", "message": f"cannot listen on {brief.host}:{brief.port} ({error})"})
            return 1
        tell({"event": "listening", "address": f"{brief.host}:{runner.server.port}"})
    else:
        runner = environment.create_local_runner()
    conductor = Conductor(environment, runner, job, tell)
    shape.follow(conductor.elapsed_s, conductor.busy)
    if brief.role == "local":
        Hand(environment, runner)
    gevent.spawn(stats_history, runner)
    try:
        if brief.web_port is not None and not _serve_web(environment, brief):
            return 1
        if brief.web_port is None and _enough_workers(conductor, brief.expect_workers, over):
            runner.start_shape()
            gevent.wait([conductor.finished, over], count=1)
        else:
            over.wait()
    finally:
        runner.stop()
        environment.events.quitting.fire(environment=environment, reverse=True)
        runner.quit()
    return 0


def _enough_workers(conductor: Conductor, wanted: int, over: Event) -> bool:
    """Wait for them; False when the shell is to end first."""
    seen = -1
    while not over.is_set() and len(conductor.workers()) < wanted:
        if len(conductor.workers()) != seen:
            seen = len(conductor.workers())
            tell({"event": "waiting", "workers": seen, "wanted": wanted})
        gevent.sleep(LOOK_EVERY_S)
    return not over.is_set()


def _serve_web(environment: Environment, brief: Brief) -> bool:
    """locust's web UI; whether it serves."""
    web = environment.create_web_ui(host=brief.bind, port=brief.web_port or 0, delayed_start=True)
    web.start()
    deadline = time.monotonic() + START_WITHIN_S
    while web.greenlet is not None and not web.greenlet.dead and time.monotonic() < deadline:
        if web.server is not None and web.server.started:
            tell({"event": "web", "url": f"http://{brief.bind}:{web.server.server_port}"})
            return True
        gevent.sleep(LOOK_EVERY_S)
    why = getattr(web.greenlet, "exception", None) or "no answer"
    tell({"event": "failed", "message": f"the web UI cannot listen on {brief.bind}:{brief.web_port} ({why})"})
    return False


if __name__ == "__main__":
    sys.exit(main())
