"""What a gateway spends on a request besides its images, measured on a real gateway process in front of stand-ins.

Every body is sent twice or more. The first time its images are new, and fill the image cache. What counts for the
request is spent on the later ones, where images are read, hashed and handed over, and not decoded; what the first time
takes beyond that is the images'. Stand-ins answer in processes of their own.

Measured twice: few requests at once, where every token wakes the loop by itself, and many, where tokens come together.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from serving.config import ServeConfig
from serving.engines.commands import Host, launches, ports_needed
from serving.launcher import engine_member, gateway_member
from serving.plan_cpu import RequestCost
from serving.plan_process import Spent, spent
from serving.supervisor import Supervisor, processes
from serving.topology import SIMULATED, Plan, free_ports
from toolkit.core.clock import SystemClock
from toolkit.core.errors import EnvironmentFault
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

FEW, MANY = 2, 12  # at once
SETTLED_S = 4.0
"""After its start; until then its decoding processes start too."""

IDLE_S = 2.0
AT_MOST_S = 5.0  # of one class and one way, after which none is sent again
ENOUGH_CPU_S = 0.3
CACHE_MB = 1024  # all that is sent stays: what is measured must not decode
TOKENS = 1_000_000  # KV pool of a stand-in
REQUEST_S = 120.0


@dataclass(frozen=True, slots=True)
class Front:
    """idle_cores: what a gateway without requests keeps busy. By class: requests, and CPU seconds per new image."""

    idle_cores: float
    requests: Mapping[str, RequestCost]
    images: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Asked:
    """A body to send, which names the model SIMULATED. images: that it shows."""

    body: bytes
    images: int


async def measure_requests(
    config: ServeConfig,
    model_path: str,
    bodies: Mapping[str, Sequence[Asked]],
    on_progress: Callable[[str], None] = lambda _: None,
) -> Front:
    """The cost of each class's requests.

    Raises EnvironmentFault when a request is not answered, ServiceFailed when the processes cannot be had.
    """
    async with gateway_on_stand_ins(config, model_path) as (url, pid, client):
        on_progress("an idle gateway")
        await asyncio.sleep(SETTLED_S)
        before, began = spent(pid), time.monotonic()
        await asyncio.sleep(IDLE_S)
        idle = spent(pid).whole_s - before.whole_s
        idle_cores = idle / (time.monotonic() - began)
        requests, images = {}, {}
        for name, some in bodies.items():
            on_progress(name)
            requests[name], images[name] = await _class(client, url, pid, some, idle_cores)
        return Front(idle_cores, requests, images)


@asynccontextmanager
async def gateway_on_stand_ins(
    config: ServeConfig, model_path: str
) -> AsyncIterator[tuple[str, int, HttpClient]]:
    """A gateway process with this configuration's images before a simulated pair: its URL, its pid, a client."""
    planned = _plan(config, model_path)
    with tempfile.TemporaryDirectory(prefix="toolkit-plan-") as folder:
        run_dir = Path(folder)
        for below in ("logs", "journal"):
            (run_dir / below).mkdir()
        planned.service().write(run_dir)
        client = HttpClient()
        made = Supervisor(planned.config.supervisor, run_dir, SystemClock(), client, lambda _: None)
        try:
            engines = [engine_member(planned.config, run_dir, one) for one in planned.launches]
            await made.start([*engines, gateway_member(planned.config, run_dir, planned.gateway_url)])
            pid = next(one["pid"] for one in processes(run_dir) if one["name"] == "gateway")
            yield planned.gateway_url, int(pid), client
        finally:
            await made.close()
            await client.close()


def _plan(config: ServeConfig, model_path: str) -> Plan:
    """As `toolkit serve` would plan it, but on loopback, before stand-ins, without keys, with a cache that keeps all."""
    gateway_port, *ports = free_ports("127.0.0.1", 4)
    one = {"count": 1}
    engine = {
        **config.engine.model_dump(exclude={"attach_prefill", "attach_decode", "extra_args"}),
        "kind": "simulated", "preset": "h100_like", "host": "127.0.0.1", "transfer": "tcp", "tp": 1,
        "prefill": one, "decode": one, "max_total_tokens": TOKENS,
    }  # fmt: skip
    gateway = {"host": "127.0.0.1", "port": gateway_port, "api_keys_file": ""}
    own = ServeConfig.model_validate(
        {
            **config.model_dump(),
            "engine": engine,
            "gateway": {**config.gateway.model_dump(), **gateway},
            "access": {
                **config.access.model_dump(),
                "cache_mb": CACHE_MB,
                "memory_mb": config.access.memory_mb + CACHE_MB,
            },
        }
    )
    host = Host(gpu=False, python=sys.executable, simulated=True)
    assert ports_needed(own.engine, host) == len(ports)
    started = launches(own, host, SIMULATED, SIMULATED, ports)
    url = f"http://127.0.0.1:{gateway_port}"
    return Plan(own, started, tuple(one.endpoint for one in started), model_path, SIMULATED, url)


async def _class(
    client: HttpClient, url: str, pid: int, asked: Sequence[Asked], idle_cores: float
) -> tuple[RequestCost, float]:
    mixed = random.Random(1).sample(asked, len(asked))  # they come in order of their answers' length
    first, new = mixed[: len(mixed) // 4], mixed[len(mixed) // 4 :]
    await _send_all(client, url, [one.body for one in first], MANY)  # starts what is started once
    cold = await _cost(client, url, pid, [one.body for one in new], MANY, idle_cores, once=True)
    bodies = [one.body for one in mixed]
    few = await _cost(client, url, pid, bodies, FEW, idle_cores)
    many = await _cost(client, url, pid, bodies, MANY, idle_cores)
    request = RequestCost(
        n=few.sent + many.sent,
        few_s=few.whole_s,
        many_s=many.whole_s,
        mean_s=max(few.whole_s, many.whole_s),
        loop_s=many.loop_s,
    )
    shown = sum(one.images for one in new)
    return request, max(0.0, cold.whole_s - many.whole_s) * cold.sent / shown if shown else 0.0


@dataclass(frozen=True, slots=True)
class _Cost:
    sent: int
    whole_s: float
    loop_s: float


async def _cost(
    client: HttpClient,
    url: str,
    pid: int,
    bodies: Sequence[bytes],
    at_once: int,
    idle_cores: float,
    *,
    once: bool = False,
) -> _Cost:
    before, began, sent = spent(pid), time.monotonic(), 0
    used, took = Spent(0.0, 0.0), 0.0
    while not sent or (not once and used.whole_s < ENOUGH_CPU_S and took < AT_MOST_S):
        await _send_all(client, url, bodies, at_once)
        sent += len(bodies)
        used, took = spent(pid).since(before), time.monotonic() - began
    whole_s, loop_s = (
        max(0.0, value - idle_cores * took) / max(1, sent) for value in (used.whole_s, used.main_thread_s)
    )
    return _Cost(sent, whole_s, min(whole_s, loop_s))


async def _send_all(client: HttpClient, url: str, bodies: Sequence[bytes], at_once: int) -> None:
    waiting = list(reversed(bodies))

    async def sender() -> None:
        while waiting:
            await _send(client, url, waiting.pop())

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(bodies))):
                group.create_task(sender())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _send(client: HttpClient, url: str, body: bytes) -> None:
    headers = (("content-type", "application/json"), ("x-slo-class", "batch"))
    try:
        async with asyncio.timeout(REQUEST_S):
            response = await client.send("POST", f"{url}/v1/chat/completions", headers, body)
            answer = await response.read()
    except (TransportError, TimeoutError) as error:
        raise EnvironmentFault(f"the measured gateway did not answer: {error!r}.") from error
    if response.status != 200:
        said = answer.decode("utf-8", "replace")[:300]
        raise EnvironmentFault(f"the measured gateway answered {response.status}: {said}")
