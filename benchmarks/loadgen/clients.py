"""One load-generating client, alone in its process: `clients.py NAME` reads a task as JSON, writes what it saw as JSON.

Runs in whichever environment holds the client, so the peers import nothing of ours. All do the same work: absolute
deadlines, a body of prebuilt bytes, every event parsed, the first content token timed on CLOCK_MONOTONIC.
"""

import asyncio
import gc
import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

PATH = "/v1/chat/completions"
LEAD_S = 0.2
DRAIN_S = 10.0


class Seen:
    """What a client saw of one request. Times are time.monotonic()."""

    __slots__ = ("answer", "due", "events", "first", "sent")

    def __init__(self, due: float) -> None:
        self.due = due
        self.sent = self.first = 0.0
        self.events = 0
        self.answer = ""

    def event(self, data: bytes, at: float, loads: Callable[[bytes], Any]) -> None:
        """One event's data, as a load generator has to read it."""
        self.events += 1
        if data == b"[DONE]":
            return
        for choice in loads(data).get("choices") or ():
            if not self.first and choice["delta"].get("content"):
                self.first = at


def ours(task: dict[str, Any]) -> tuple[list[Seen], float]:
    """The production path of toolkit bench: ChatCaller under Driver."""
    import uvloop

    from toolkit.core.clock import SystemClock
    from toolkit.core.http.client import HttpClient
    from toolkit.core.plan import PlannedRequest
    from toolkit.core.sample import SloClass, WorkloadClass
    from workloads.client import ChatCaller
    from workloads.driver import Driver
    from workloads.prepare import Prepared

    headers, body = (("content-type", "application/json"),), make_body(task)
    prepared = [
        Prepared(PlannedRequest(n, at, WorkloadClass.TEXT_ONLY, SloClass.BATCH, "", (), 31), headers, body)
        for n, at in enumerate(task["times"])
    ]

    async def run() -> tuple[list[Seen], float]:
        clock = SystemClock()
        client = HttpClient(clock=clock.monotonic, max_idle_per_host=10_000)
        caller = ChatCaller(client, task["url"], clock, timeout_s=60.0)
        caller.build(prepared)
        settle()
        driver = Driver(prepared, caller, clock, task["seconds"], DRAIN_S)
        cpu = time.process_time()
        drive = await driver.run(asyncio.Event())
        cpu = time.process_time() - cpu
        await client.close()
        seen = []
        for sample in drive.samples:
            one = Seen(sample.intended_s)
            one.sent = sample.sent_s or 0.0
            if sample.completed and sample.first_token_s is not None:
                one.first, one.answer, one.events = (
                    sample.first_token_s,
                    sample.request_id or "",
                    task["events"],
                )
            seen.append(one)
        return seen, cpu

    return uvloop.run(run())


def aiohttp_(task: dict[str, Any]) -> tuple[list[Seen], float]:
    """aiohttp on uvloop, as well as one can write it by hand."""
    import aiohttp
    import orjson
    import uvloop

    async def one(session: Any, seen: Seen, body: bytes) -> None:
        seen.sent = time.monotonic()
        held = b""
        async with session.post(
            task["url"] + PATH, data=body, headers={"content-type": "application/json"}
        ) as answer:
            seen.answer = answer.headers["x-request-id"]
            async for chunk in answer.content.iter_any():
                at = time.monotonic()
                *events, held = (held + chunk).split(b"\n\n")
                for event in events:
                    seen.event(event[6:], at, orjson.loads)

    async def run() -> tuple[list[Seen], float]:
        body = make_body(task)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15)
        async with aiohttp.ClientSession(connector=connector) as session:
            settle()
            cpu, start = time.process_time(), time.monotonic() + LEAD_S
            tasks, seen = [], []
            for at in task["times"]:
                wait = start + at - time.monotonic()
                if wait > 0:
                    await asyncio.sleep(wait)
                seen.append(Seen(start + at))
                tasks.append(asyncio.create_task(one(session, seen[-1], body)))
            _, late = await asyncio.wait(tasks, timeout=DRAIN_S)
            cpu = time.process_time() - cpu
            for each in late:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return seen, cpu

    return uvloop.run(run())


def locust_(task: dict[str, Any], read: str) -> tuple[list[Seen], float]:
    """FastHttpUser's client; the open loop is greenlets at absolute deadlines, since locust's users are a closed one."""
    monkey = importlib.import_module("gevent.monkey")
    monkey.patch_all()
    import gevent
    from locust.contrib.fasthttp import FastHttpUser
    from locust.env import Environment

    orjson = importlib.import_module("orjson")

    class User(FastHttpUser):
        host = task["url"]
        concurrency = 10_000
        network_timeout = connection_timeout = 60.0

    user = User(Environment(user_classes=[User]))
    body, headers = make_body(task), {"content-type": "application/json"}

    def one(seen: Seen) -> None:
        seen.sent = time.monotonic()
        if read == "iter_lines":
            lines = user.client.iter_lines(PATH, "POST", data=body, headers=headers)
            for line in lines:
                at = time.monotonic()
                if line.startswith("data: "):
                    seen.event(line[6:].encode(), at, orjson.loads)
            seen.answer = "?"  # the documented call does not give the response
            return
        with user.client.post(PATH, data=body, headers=headers, stream=True, catch_response=True) as answer:
            seen.answer = answer.headers["x-request-id"]
            stream = answer._response
            while line := stream.readline(b"\n"):
                at = time.monotonic()
                if line.startswith(b"data: "):
                    seen.event(bytes(line[6:-1]), at, orjson.loads)
            answer.success()
            stream.release()

    settle()
    cpu, start = time.process_time(), time.monotonic() + LEAD_S
    seen, greenlets = [], []
    for at in task["times"]:
        wait = start + at - time.monotonic()
        if wait > 0:
            gevent.sleep(wait)
        seen.append(Seen(start + at))
        greenlets.append(gevent.spawn(one, seen[-1]))
    gevent.joinall(greenlets, timeout=DRAIN_S)
    return seen, time.process_time() - cpu


def pacing_ours(task: dict[str, Any]) -> tuple[list[Seen], float]:
    """The driver alone: its caller ends each request at once."""
    import uvloop

    from toolkit.core.clock import SystemClock
    from toolkit.core.plan import PlannedRequest
    from toolkit.core.sample import SloClass, WorkloadClass
    from workloads.driver import Driver
    from workloads.prepare import Prepared
    from workloads.record import LoadOutcome, LoadSample

    clock = SystemClock()

    class Nobody:
        def begin(self, item: Prepared, started_at: float, on_end: Callable[[LoadSample], None]) -> None:
            now, planned = clock.monotonic() - started_at, item.planned
            on_end(
                LoadSample(
                    planned.index,
                    planned.workload_class,
                    planned.slo_class,
                    planned.at_s,
                    LoadOutcome.COMPLETED,
                    now,
                    now,
                )
            )

        def cut_off(self) -> None: ...

    prepared = [
        Prepared(PlannedRequest(n, at, WorkloadClass.TEXT_ONLY, SloClass.BATCH, "", (), 31), (), b"")
        for n, at in enumerate(task["times"])
    ]

    async def run() -> tuple[list[Seen], float]:
        settle()
        cpu = time.process_time()
        drive = await Driver(prepared, Nobody(), clock, task["seconds"], DRAIN_S).run(asyncio.Event())
        cpu = time.process_time() - cpu
        seen = []
        for sample in drive.samples:
            seen.append(Seen(sample.intended_s))
            seen[-1].sent = sample.sent_s or 0.0
        return seen, cpu

    return uvloop.run(run())


def pacing_relative(task: dict[str, Any]) -> tuple[list[Seen], float]:
    """What most generators do: sleep for the gap, then send; on asyncio's own loop, as they run."""

    async def run() -> tuple[list[Seen], float]:
        settle()
        cpu, start, before, seen = time.process_time(), time.monotonic(), 0.0, []
        for at in task["times"]:
            await asyncio.sleep(at - before)
            before = at
            seen.append(Seen(start + at))
            seen[-1].sent = time.monotonic()
        return seen, time.process_time() - cpu

    return asyncio.run(run())


def make_body(task: dict[str, Any]) -> bytes:
    content = "x" * task["body_bytes"]
    return json.dumps({"stream": True, "messages": [{"role": "user", "content": content}]}).encode()


def settle() -> None:
    """What lives to the end of the run is not walked by the collector in mid-run."""
    gc.collect()
    gc.freeze()


CLIENTS: dict[str, Callable[[dict[str, Any]], tuple[list[Seen], float]]] = {
    "toolkit bench": ours,
    "aiohttp": aiohttp_,
    "locust readline": lambda task: locust_(task, "readline"),
    "locust iter_lines": lambda task: locust_(task, "iter_lines"),
    "pacing absolute": pacing_ours,
    "pacing relative": pacing_relative,
}


def main() -> None:
    task = json.load(sys.stdin)
    seen, cpu = CLIENTS[sys.argv[1]](task)
    rows = [[s.answer, s.due, s.sent, s.first, s.events] for s in seen]
    json.dump({"cpu_s": cpu, "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
