"""Starts the engines and the gateway, watches them, starts them again, and takes everything down in time."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.config import SupervisorConfig
from serving.engines.process import Command, Process, last_lines
from serving.engines.restart import Event, Restart, State
from toolkit.core.clock import Clock
from toolkit.core.errors import EngineFailed
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

PROCESSES_FILE = "processes.json"
READY_POLL_S = (0.05, 0.25)  # at first, for what is ready in a second or two; later, for SGLang's minute
AT_FIRST = 100  # looks
READY_ANSWER_S = 5.0  # a look that takes longer than this found a process that is not ready
STOP_TOTAL_S = 8.5  # everything is down within 10 s of the signal; the rest is for the exit itself
MIN_GRACE_S = 0.5
KILLED = 137  # SIGKILL; usual for SGLang, which looks at its own stop flag only every 5 s


@dataclass(frozen=True, slots=True)
class Member:
    """A process to keep up. ready_url answers 200 when it is of use; first_down: stopped before the others; longer_s: that
    its grace may add to STOP_TOTAL_S."""

    command: Command
    ready_url: str
    ready_timeout_s: float
    first_down: bool = False
    longer_s: float = 0.0

    @property
    def name(self) -> str:
        return self.command.name


@dataclass(frozen=True, slots=True)
class News:
    """Something that people at the terminal want to know."""

    name: str
    what: str
    state: State


class ServiceFailed(EngineFailed):
    """A process could not be kept up; the message holds the end of its log."""


class _Kept:
    """A member and what became of it."""

    def __init__(self, member: Member, config: SupervisorConfig) -> None:
        self.member = member
        self.restart = Restart(config)
        self.process: Process | None = None
        self.ready = asyncio.Event()

    @property
    def name(self) -> str:
        return self.member.name


class Supervisor:
    """Owns every process it started; `close` ends them all, whatever happened before.

    hear: called with News from the event loop; it must not block for long. processes.json in the run folder tells
    others which process is which: name, state, pid, starts.
    """

    def __init__(
        self,
        config: SupervisorConfig,
        run_dir: Path,
        clock: Clock,
        client: HttpClient,
        hear: Callable[[News], None],
    ) -> None:
        self._config = config
        self._run_dir = run_dir
        self._clock = clock
        self._client = client
        self._hear = hear
        self._kept: list[_Kept] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._failure: asyncio.Future[ServiceFailed] | None = None
        self._writing = asyncio.Lock()
        self._noting: set[asyncio.Task[None]] = set()

    async def start(self, members: Iterable[Member]) -> None:
        """Start them together and wait until each is ready. Raises ServiceFailed when one is not to be had."""
        fresh = [_Kept(member, self._config) for member in members]
        self._kept += fresh
        for kept in fresh:
            watcher = asyncio.create_task(self._keep_up(kept), name=kept.name)
            watcher.add_done_callback(self._watcher_ended)
            self._watchers.append(watcher)
        all_ready = asyncio.gather(*(kept.ready.wait() for kept in fresh))
        try:
            await self._unless_failed(all_ready)
        finally:
            all_ready.cancel()
            await asyncio.gather(all_ready, return_exceptions=True)

    async def watch(self) -> None:
        """Return never; raises ServiceFailed when a process is given up."""
        await self._unless_failed(asyncio.get_running_loop().create_future())

    def waiting_for(self) -> tuple[str, ...]:
        """Names of the processes that are not ready."""
        return tuple(kept.name for kept in self._kept if kept.restart.state is not State.READY)

    async def close(self) -> None:
        """Take everything down within STOP_TOTAL_S, but for a longer drain: the gateway first, so that open requests can end."""
        ends = (
            self._clock.monotonic()
            + STOP_TOTAL_S
            + max((one.member.longer_s for one in self._kept), default=0.0)
        )
        for task in self._watchers:
            task.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers.clear()
        for first in (True, False):
            group = [kept for kept in self._kept if kept.member.first_down is first]
            await asyncio.gather(*(self._take_down(kept, ends) for kept in group))

    def hurry(self) -> None:
        """A process that drains for long is told again to end."""
        for kept in self._kept:
            pid = kept.process.pid if kept.process is not None else 0
            if pid and kept.member.longer_s and kept.restart.state is State.STOPPING:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    # --- one process

    async def _keep_up(self, kept: _Kept) -> None:
        while True:
            status = await self._run_once(kept)
            state = kept.restart.apply(Event.EXITED, self._clock.monotonic())
            kept.ready.clear()
            kept.process = None
            if state is State.GIVEN_UP:
                await self._report(kept, f"exited with status {status}; given up")
                self._give_up(kept, status)
                return
            await self._report(kept, f"exited with status {status}; next start in {kept.restart.wait_s:g} s")
            await asyncio.sleep(kept.restart.wait_s)
            kept.restart.apply(Event.BACKOFF_OVER, self._clock.monotonic())

    async def _run_once(self, kept: _Kept) -> int:
        """Start it and wait for its end; returns the exit status."""
        kept.process = await Process.start(kept.member.command, lambda message: self._told(kept, message))
        await self._report(kept, "starting")
        ended = asyncio.create_task(kept.process.wait())
        looking = asyncio.create_task(self._until_ready(kept))
        try:
            await asyncio.wait({ended, looking}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                if looking.result():
                    kept.restart.apply(Event.BECAME_READY, self._clock.monotonic())
                    await self._report(kept, "ready")
                    kept.ready.set()
                else:
                    await self._report(kept, f"not ready within {kept.member.ready_timeout_s:g} s: ending it")
                    await kept.process.stop(MIN_GRACE_S)
            return await asyncio.shield(ended)
        finally:
            for task in (ended, looking):
                task.cancel()
            await asyncio.gather(ended, looking, return_exceptions=True)

    async def _until_ready(self, kept: _Kept) -> bool:
        """Ask until the answer is 200; False when that takes too long."""
        looks = 0
        try:
            async with asyncio.timeout(kept.member.ready_timeout_s):
                while not await self._answers(kept.member.ready_url):
                    looks += 1
                    await asyncio.sleep(READY_POLL_S[looks > AT_FIRST])
        except TimeoutError:
            return False
        return True

    async def _answers(self, url: str) -> bool:
        try:
            async with asyncio.timeout(READY_ANSWER_S):
                response = await self._client.send("GET", url)
                await response.read()
                return response.status == 200
        except (TransportError, TimeoutError):
            return False

    async def _take_down(self, kept: _Kept, ends: float) -> None:
        state = kept.restart.apply(Event.STOP, self._clock.monotonic())
        kept.ready.clear()
        if kept.process is not None and state is State.STOPPING:
            await self._report(kept, "stopping")
            left_s = ends - self._clock.monotonic()
            grace_s = max(MIN_GRACE_S, min(kept.member.command.grace_s, left_s))
            status = await kept.process.stop(grace_s)
            kept.process = None
            kept.restart.apply(Event.EXITED, self._clock.monotonic())
            how = (
                ""
                if status == 0
                else f" (killed after {grace_s:.0f} s)"
                if status == KILLED
                else f" (status {status})"
            )
            await self._report(kept, f"stopped{how}")

    # --- telling

    def _told(self, kept: _Kept, message: dict[str, Any]) -> None:
        """What the guard says of the log: the service goes on, people should know."""
        match message.get("event"):
            case "started":
                self._noting.add(note := asyncio.get_running_loop().create_task(self._record()))
                note.add_done_callback(self._noting.discard)
            case "log_failed":
                self._news(kept, f"its log cannot be written, output is being lost: {message.get('error')}")
            case "log_restored":
                self._news(
                    kept, f"its log is written again; {message.get('lost_bytes')} bytes of output were lost"
                )

    async def _report(self, kept: _Kept, what: str) -> None:
        self._news(kept, what)
        await self._record()

    def _news(self, kept: _Kept, what: str) -> None:
        self._hear(News(kept.name, what, kept.restart.state))

    async def _record(self) -> None:
        """processes.json, in one step; a disk that refuses it stops nothing."""
        rows = [
            {
                "name": kept.name,
                "state": kept.restart.state.value,
                "pid": kept.process.pid if kept.process else 0,
                "guard_pid": kept.process.guard_pid if kept.process else 0,
                "starts": kept.restart.starts,
            }
            for kept in self._kept
        ]
        async with self._writing:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(_replace, self._run_dir / PROCESSES_FILE, json.dumps(rows, indent=1))

    # --- failing

    def _give_up(self, kept: _Kept, status: int) -> None:
        log = kept.member.command.log
        why = "keeps exiting" if kept.restart.crash_loop else "ended before it was ready"
        lines = "\n".join(f"  {line}" for line in last_lines(log)) or "  (its log is empty)"
        self._fail(f"{kept.name} {why} (last status {status}). The end of {log}:\n{lines}")

    def _fail(self, message: str) -> None:
        if not self._failed_future.done():
            self._failed_future.set_result(ServiceFailed(message))

    def _watcher_ended(self, task: asyncio.Task[None]) -> None:
        """A watcher ends by itself only with a process given up, or with a fault that must not go unseen."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"{task.get_name()} cannot be kept up: {error}")

    @property
    def _failed_future(self) -> "asyncio.Future[ServiceFailed]":
        if self._failure is None:
            self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    async def _unless_failed(self, awaited: "asyncio.Future[Any]") -> None:
        failure = self._failed_future
        await asyncio.wait({awaited, failure}, return_when=asyncio.FIRST_COMPLETED)
        if failure.done():
            raise failure.result()


def processes(run_dir: Path) -> Sequence[dict[str, Any]]:
    """What processes.json says; empty when there is none."""
    try:
        rows: list[dict[str, Any]] = json.loads((run_dir / PROCESSES_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return rows


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".json.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
