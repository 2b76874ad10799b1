"""Runs the two ends of a transfer benchmark (engines/transfer/agent.py) as guarded processes and reads what they tell.

Neither outlives the command: each has a guard (engines/guard.py) for a parent. Nothing waits for ever: the agents bound
each transfer, Mooncake bounds it too, and an agent that falls silent is killed from here.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from serving.engines.process import Command, Process, last_lines
from serving.transfer_plan import Plan, environment, size_name
from serving.transfer_result import Measured, Report
from toolkit.core.errors import EngineFailed, EnvironmentFault

AGENT = Path(__file__).parent / "engines" / "transfer" / "agent.py"
LOOK_EVERY_S = 0.02
START_S = 30.0  # importing Mooncake on a busy machine, and filling the buffer
GRACE_S = 0.5
INFINIBAND = Path("/sys/class/infiniband")


class TransferFailed(EngineFailed):
    """A transfer did not end, ended wrongly, or brought other bytes.

    kind: engine (Mooncake does not start), transfer (it gave an error), stalled (no answer in time), peer (the other end
    is gone or differs), bytes (what arrived is not what was written), ended (one of the processes ended).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message, hop="kv_transfer")
        self.kind = kind


def ib_devices(folder: Path = INFINIBAND) -> tuple[str, ...]:
    """The RDMA devices of this machine, sorted; none where there is no such folder."""
    return tuple(sorted(entry.name for entry in folder.iterdir())) if folder.is_dir() else ()


class Agent:
    """One end: its process and what it tells."""

    def __init__(self, role: str, folder: Path) -> None:
        self.role = role
        self.log = folder / f"{role}.log"
        self._told = folder / f"{role}.jsonl"
        self._read = 0
        self._process: Process | None = None
        self._ended: asyncio.Task[int] | None = None

    @property
    def pid(self) -> int:
        """Of the agent; 0 before it runs."""
        return self._process.pid if self._process else 0

    async def start(self, python: str, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """Raises EnvironmentFault."""
        argv = (python, "-I", str(AGENT), self.role, "--told", str(self._told.resolve()), *arguments)
        command = Command(self.role, argv, env, self.log, 4_000_000, 1, GRACE_S)
        self._told.unlink(missing_ok=True)
        try:
            self._process = await Process.start(command, lambda _: None)
        except OSError as error:
            raise EnvironmentFault(f"The {self.role} of the transfer cannot be started: {error}.") from error
        self._ended = asyncio.create_task(self._process.wait())

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.stop(GRACE_S)

    async def ended(self) -> int:
        """Its exit status, once it has one."""
        assert self._ended is not None
        return await asyncio.shield(self._ended)

    async def event(self, limit_s: float | None) -> dict[str, Any]:
        """The next thing it tells; {"event": "ended"} after its end with status 0. Raises TransferFailed."""
        assert self._ended is not None
        until = None if limit_s is None else time.monotonic() + limit_s
        while True:
            over = self._ended.done()  # before the look: what it told last is read first
            if event := self._look():
                if event["event"] == "failed":
                    raise TransferFailed(event["kind"], f"The {self.role} of the transfer: {event['error']}.")
                return event
            if over:
                if self._ended.result() == 0:
                    return {"event": "ended"}
                raise TransferFailed("ended", self._epitaph(self._ended.result()))
            if until is not None and time.monotonic() > until:
                raise TransferFailed(
                    "stalled", f"The {self.role} of the transfer told nothing for {limit_s:.0f} s: killed."
                )
            await asyncio.sleep(LOOK_EVERY_S)

    def _look(self) -> dict[str, Any] | None:
        try:
            with self._told.open("rb") as file:
                file.seek(self._read)
                line = file.readline()
        except FileNotFoundError:
            return None
        if not line.endswith(b"\n"):
            return None
        self._read += len(line)
        event: dict[str, Any] = json.loads(line)
        return event

    def _epitaph(self, status: int) -> str:
        how = f"signal {status - 128}" if status > 128 else f"status {status}"
        last = " | ".join(last_lines(self.log, 3))
        return f"The {self.role} of the transfer ended with {how}" + (f": {last}" if last else ".")


async def run(
    plan: Plan,
    python: str,
    folder: Path,
    peer: str = "",
    heard: Callable[[str], None] = lambda _: None,
    started: Callable[[Agent], None] = lambda _: None,
) -> Report:
    """Measure every cell against a target on this machine, or against the one that listens at `peer` (HOST:PORT).

    Raises TransferFailed, EnvironmentFault. `heard` gets a word before each cell; `started` each agent that is ready.
    """
    began, load = time.time(), os.getloadavg()[0]
    env = environment(plan.protocol, plan.stall_s)
    target, initiator = Agent("target", folder), Agent("initiator", folder)
    common = ("--protocol", plan.protocol, "--device", plan.device, "--buffer", str(plan.buffer_bytes))
    try:
        if not peer:
            await target.start(python, ("--host", "127.0.0.1", *common), env)
            ready = await target.event(START_S)
            started(target)
        address = peer or f"127.0.0.1:{ready['port']}"
        cells = json.dumps([(cell.size_bytes, cell.batch) for cell in plan.cells])
        timing = ("--seconds", str(plan.seconds), "--stall", str(plan.stall_s))
        arguments = ("--peer", address, "--cells", cells, "--streams", str(plan.streams), *timing, *common)
        await initiator.start(python, arguments, env)
        ready = await initiator.event(START_S + plan.stall_s)
        started(initiator)
        # One cell: the first transfer, the timed ones, the last bytes, the checksums of both; each bounded on its own.
        limit_s = plan.seconds + 5 * plan.stall_s
        measured = []
        while (event := await initiator.event(limit_s))["event"] != "ended":
            if event["event"] == "begin":
                heard(f"{event['batch']} x {size_name(event['size_bytes'])}")
            elif event["event"] == "cell":
                measured.append(Measured.of(event))
    finally:
        await asyncio.gather(initiator.stop(), target.stop())
    mine = {name: value for name, value in {**os.environ, **env}.items() if name.startswith("MC_")}
    return Report(
        plan, tuple(measured), ready["mooncake"], mine, address, began, load, len(os.sched_getaffinity(0))
    )


async def listen(
    plan: Plan, python: str, folder: Path, host: str, port: int, heard: Callable[[str], None]
) -> None:
    """Be the target for one `--peer` of another machine, then end. Raises TransferFailed, EnvironmentFault."""
    target = Agent("target", folder)
    common = ("--protocol", plan.protocol, "--device", plan.device, "--buffer", str(plan.buffer_bytes))
    try:
        arguments = ("--host", host, "--port", str(port), *common)
        await target.start(python, arguments, environment(plan.protocol, plan.stall_s))
        ready = await target.event(START_S)
        heard(f"{host}:{ready['port']}")
        while (await target.event(None))["event"] != "ended":
            heard("peer")
    finally:
        await target.stop()
