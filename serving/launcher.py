"""One service from its plan to its end: what `toolkit serve` runs."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from serving.config import ServeConfig
from serving.engines.commands import Launch
from serving.engines.process import Command
from serving.engines.restart import State
from serving.introduce import introduced
from serving.schedule.shared.configured import first_look
from serving.service import OWN_HEADER, Service
from serving.supervisor import READY_ANSWER_S, Member, News, Supervisor
from serving.topology import Plan
from toolkit.core.clock import SystemClock
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

# Set by `make serve`: a make that is killed with SIGKILL tells nobody, so the kernel does.
STOP_WITH_PARENT = "TOOLKIT_STOP_WITH_PARENT"
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# The gateway drains, then cuts what is open and flushes its journal.
GATEWAY_EXTRA_S = 1.5
GATEWAY_END_S = 2.0
USUAL_DRAIN_S = 3.0  # within the 10 s in which all is down; who configures more waits for it
UPLOAD_LONGEST_S = 1.5  # of storage.drain_timeout_s: what is left waits in the spool anyway
FIRST_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """How the first real question went. refusal: the gateway's message when it was not answered, else empty."""

    took_s: float
    refusal: str = ""


class Audience(Protocol):
    """Who follows a launch. Called from the event loop: none of it may block for long."""

    def hear(self, news: News) -> None:
        """Something happened to a process."""
        ...

    def question(self, service: Service) -> bytes:
        """A chat-completions body to ask first; it also loads what engines load at their first image only."""
        ...

    def ready(self, service: Service, first: FirstAnswer, stores: Mapping[str, str]) -> None:
        """Everything is up and the question was asked. stores: what is known of each that requests go on without."""
        ...


async def launch(plan: Plan, run_dir: Path, audience: Audience) -> None:
    """Start, ask a first question, and stay up until SIGINT, SIGTERM or SIGHUP.

    Whatever happens, everything started is down when this returns. Raises ServiceFailed when a process cannot be
    kept up, EngineUnavailable when an attached engine does not answer.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    client = HttpClient()
    supervisor = Supervisor(plan.config.supervisor, run_dir, SystemClock(), client, audience.hear)

    def end() -> None:
        if stop.is_set():  # a second one: a gateway that drains for long is not waited for
            supervisor.hurry()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)
    _stop_with_parent(stop)
    running = asyncio.create_task(_run(plan, run_dir, supervisor, client, audience))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        for task in (running, stopped):
            task.cancel()
        await asyncio.gather(running, stopped, return_exceptions=True)
        await supervisor.close()
        await client.close()


async def _run(
    plan: Plan, run_dir: Path, supervisor: Supervisor, client: HttpClient, audience: Audience
) -> None:
    if fault := await first_look(plan.config.shared):
        audience.hear(News("gateway", f"{fault}: it takes no request until that works", State.STARTING))
    if plan.config.engine.attached:
        plan = await introduced(client, plan)
    service = plan.service()
    service.write(run_dir)
    engines = [engine_member(plan.config, run_dir, one) for one in plan.launches]
    await supervisor.start([*engines, gateway_member(plan.config, run_dir, plan.gateway_url)])
    url = f"{plan.gateway_url}/v1/chat/completions"
    first = await ask(client, url, audience.question(service), plan.api_key, service.own_key)
    audience.ready(service, first, await standing(client, plan.gateway_url))
    await supervisor.watch()


def engine_member(config: ServeConfig, run_dir: Path, one: Launch) -> Member:
    """An engine is ready when its own GET /ready says so."""
    command = _command(config, run_dir, one.name, one.argv, one.env, config.supervisor.stop_grace_s)
    return Member(command, f"{one.endpoint.url}/ready", config.engine.ready_timeout_s)


def gateway_member(config: ServeConfig, run_dir: Path, url: str) -> Member:
    """The gateway is ready when an image went through a pair."""
    upload_s = config.storage.drain_timeout_s if config.storage.url else 0.0
    drain_s = config.gateway.drain_lead_s + config.gateway.drain_timeout_s
    end_s = min(GATEWAY_EXTRA_S + upload_s, GATEWAY_END_S + min(upload_s, UPLOAD_LONGEST_S))
    longer_s = max(0.0, drain_s - USUAL_DRAIN_S)
    command = _command(
        config, run_dir, "gateway", gateway_argv(run_dir), {"PYTHONUNBUFFERED": "1"}, drain_s + end_s
    )
    ready_s = config.engine.ready_timeout_s
    return Member(command, f"{url}/readyz", ready_s, first_down=True, longer_s=longer_s)


def gateway_argv(run_dir: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "serving.gateway", "--run", str(run_dir))


def _command(
    config: ServeConfig,
    run_dir: Path,
    name: str,
    argv: tuple[str, ...],
    env: Mapping[str, str],
    grace_s: float,
) -> Command:
    limits = config.supervisor
    log = run_dir / "logs" / f"{name}.log"
    return Command(name, argv, env, log, limits.log_max_bytes, limits.log_keep_files, grace_s)


async def ask(client: HttpClient, url: str, body: bytes, key: str = "", own_key: str = "") -> FirstAnswer:
    """Post one question of our own with a long budget and read the whole answer. No trouble is raised: it is told."""
    began = time.monotonic()
    headers = [("content-type", "application/json"), ("x-ttft-budget-ms", str(int(FIRST_ANSWER_S * 1000)))]
    if own_key:
        headers.append((OWN_HEADER, own_key))
    if key:
        headers.append(("authorization", f"Bearer {key}"))
    try:
        async with asyncio.timeout(FIRST_ANSWER_S):
            response = await client.send("POST", url, headers, body)
            answer = await response.read()
    except (TransportError, TimeoutError) as error:
        return FirstAnswer(time.monotonic() - began, str(error) or f"no answer within {FIRST_ANSWER_S:g} s")
    refusal = "" if response.status == 200 and b"[DONE]" in answer else answer.decode(errors="replace")[:300]
    return FirstAnswer(time.monotonic() - began, refusal)


async def standing(client: HttpClient, gateway_url: str) -> dict[str, str]:
    """Of each store that is configured: "works", "unknown", or "fails: " and why. Empty where the gateway does not say."""
    try:
        async with asyncio.timeout(READY_ANSWER_S):
            response = await client.send("GET", f"{gateway_url}/readyz")
            document = orjson.loads(await response.read())
        return dict(document["stores"])
    except (TransportError, TimeoutError, ValueError, LookupError, TypeError):
        return {}


def _stop_with_parent(stop: asyncio.Event) -> None:
    if os.environ.get(STOP_WITH_PARENT) == "1":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() == 1:  # it was gone before we asked
            stop.set()
