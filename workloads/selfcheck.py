"""The load generator measures itself: its own error against a server whose schedule and stamps are known.

The server is a process of its own (workloads/fixed_server.py); the path under test is the one of a real run. Errors:

- TTFT: (first token - sent, here) - (first write - first byte of the request read, there). Both on the machine's one
  monotonic clock; loopback and both kernels are inside, so the error is an upper bound on the generator's own.
- ITL: |gap here - gap there|, of every pair of tokens.
- Slip: sent - intended.
"""

import asyncio
import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from toolkit.core.clock import SystemClock
from toolkit.core.errors import EnvironmentFault, UsageFault
from toolkit.core.http.client import HttpClient
from toolkit.core.plan import PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass
from toolkit.core.slo import Quantile, quantile
from workloads.arrivals import poisson
from workloads.client import ChatCaller
from workloads.compose import MAX_REQUESTS
from workloads.driver import Drive, Driver
from workloads.fixed_server import Schedule, Stamps, read_stamps
from workloads.own_error import (
    MAX_SLIP_P99_S,
    MAX_TTFT_ERROR_P50_S,
    MAX_TTFT_ERROR_P99_S,
    MIN_DELIVERED,
    SelfCheck,
    versions,
)
from workloads.prepare import Prepared

DURATION_S = 4.0
RATES = (50.0, 100.0, 200.0, 400.0, 700.0)  # asked in turn when none is named
DRAIN_S = 5.0
BODY_TEXT = "x" * 400


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run against the fixed server left."""

    drive: Drive
    stamps: Mapping[str, Stamps]
    events: int
    cpu_s: float
    took_s: float


class FixedServer:
    """The server's process, from `with` to its end."""

    def __init__(self, schedule: Schedule, cpu: int | None = None) -> None:
        """cpu: pin it to that core."""
        self._schedule = schedule
        self._cpu = cpu
        self.url = ""

    def __enter__(self) -> Self:
        s = self._schedule
        options = ["--ttft", str(s.ttft_s), "--itl", str(s.itl_s), "--events", str(s.events)]
        command = [sys.executable, "-m", "workloads.fixed_server", *options]
        # A session of its own: Ctrl-C is for the run, and the kernel shares cores between sessions.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.__exit__()
            raise EnvironmentFault("the fixed-schedule server did not start; its error is above.")
        if self._cpu is not None:
            os.sched_setaffinity(self._process.pid, {self._cpu})
        self.url = f"http://127.0.0.1:{json.loads(line)['port']}"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def self_check(rate: float | None, duration_s: float, seed: int = 1) -> tuple[SelfCheck, ...]:
    """Check one rate, or RATES until one is not honest. One result per rate tried, in that order.

    A named rate that is not honest is halved until one is, so that the highest verified rate is known.
    Raises EnvironmentFault when the server cannot start, UsageFault for a rate or a duration that cannot be run.
    """
    for name, value in (("rate", 1.0 if rate is None else rate), ("duration", duration_s)):
        if not 0 < value < math.inf:
            raise UsageFault(f"--{name} is a number above 0 (got {value:g}).")
    if (rate or 0.0) * duration_s > MAX_REQUESTS:
        raise UsageFault(
            "--self-check: too many requests to hold: ask for a lower rate or a shorter duration."
        )
    results: list[SelfCheck] = []
    schedule = Schedule()
    with FixedServer(schedule) as server:
        if rate is None:
            for step in RATES:
                results.append(judge(step, duration_s, measure(server.url, schedule, step, duration_s, seed)))
                if not results[-1].honest:
                    break
        else:
            step = rate
            while True:
                results.append(judge(step, duration_s, measure(server.url, schedule, step, duration_s, seed)))
                step /= 2
                if results[-1].honest or step * duration_s < 10:
                    break
    verified = max((r.rate for r in results if r.honest), default=0.0)
    return tuple(replace(result, verified_rate=verified) for result in results)


def measure(url: str, schedule: Schedule, rate: float, duration_s: float, seed: int) -> Measured:
    """One open-loop run of Poisson arrivals through the production path."""
    import numpy as np
    import uvloop

    times = poisson(rate, duration_s, np.random.default_rng(seed))
    prepared = [_request(index, at_s, schedule) for index, at_s in enumerate(times)]

    async def run() -> Measured:
        clock = SystemClock()
        client = HttpClient(clock=clock.monotonic, max_idle_per_host=10_000)
        caller = ChatCaller(client, url, clock, timeout_s=duration_s + DRAIN_S)
        caller.build(prepared)
        driver = Driver(prepared, caller, clock, duration_s, DRAIN_S)
        gc.collect()
        gc.freeze()
        began, cpu = time.monotonic(), time.process_time()
        try:
            drive = await driver.run(asyncio.Event())
        finally:
            gc.unfreeze()
        cpu, took = time.process_time() - cpu, time.monotonic() - began
        response = await client.send("GET", f"{url}/stamps")
        stamps = {s.answer: s for s in read_stamps(await response.read())}
        await client.close()
        events = schedule.events * sum(s.completed for s in drive.samples)
        return Measured(drive, stamps, events, cpu, took)

    return uvloop.run(run())


def judge(rate: float, duration_s: float, measured: Measured) -> SelfCheck:
    """Pure: from a run and the server's stamps to the generator's error and whether it is honest."""
    samples = measured.drive.samples
    completed = [s for s in samples if s.completed and s.request_id in measured.stamps]
    ttft_errors: list[float] = []
    itl_errors: list[float] = []
    for sample in completed:
        stamps = measured.stamps[sample.request_id or ""]
        there = stamps.written_at
        assert sample.ttft_s is not None
        ttft_errors.append(sample.ttft_s - (there[0] - stamps.received_at))
        itl_errors.extend(abs(gap - (there[n + 1] - there[n])) for n, gap in enumerate(sample.itl_s))
    slips = [s.slip_s for s in samples if s.slip_s is not None]
    in_time = sum(s.sent_s is not None and s.sent_s <= duration_s + MAX_SLIP_P99_S for s in samples)
    delivered = in_time / len(samples) if samples else 0.0
    ttft50, ttft99, slip99 = quantile(ttft_errors, 0.5), quantile(ttft_errors, 0.99), _at(slips, 0.99)
    honest = (
        bool(samples)
        and len(completed) == len(samples)
        and delivered >= MIN_DELIVERED
        and slip99 <= MAX_SLIP_P99_S
        and ttft50 is not None
        and ttft50.estimate <= MAX_TTFT_ERROR_P50_S
        and ttft99 is not None
        and ttft99.estimate <= MAX_TTFT_ERROR_P99_S
    )
    return SelfCheck(
        rate=rate,
        duration_s=duration_s,
        checked_at=time.time(),
        versions=versions(),
        requests=len(samples),
        completed=len(completed),
        delivered=delivered,
        ttft_error_p50_s=_estimate(ttft50),
        ttft_error_p99_s=_estimate(ttft99),
        ttft_error_p99_firm=ttft99 is not None and ttft99.firm,
        itl_error_p50_s=_at(itl_errors, 0.5),
        itl_error_p99_s=_at(itl_errors, 0.99),
        slip_p50_s=_at(slips, 0.5),
        slip_p99_s=slip99,
        us_per_event=measured.cpu_s / measured.events * 1e6 if measured.events else 0.0,
        core_share=measured.cpu_s / measured.took_s,
        honest=honest,
        verified_rate=rate if honest else 0.0,
    )


def _request(index: int, at_s: float, schedule: Schedule) -> Prepared:
    planned = PlannedRequest(
        index, at_s, WorkloadClass.TEXT_ONLY, SloClass.BATCH, BODY_TEXT, (), schedule.tokens
    )
    body = {"stream": True, "messages": [{"role": "user", "content": BODY_TEXT}]}
    return Prepared(planned, (("content-type", "application/json"),), json.dumps(body).encode())


def _estimate(q: Quantile | None) -> float:
    return 0.0 if q is None else q.estimate


def _at(values: Sequence[float], p: float) -> float:
    return _estimate(quantile(values, p)) if values else 0.0
