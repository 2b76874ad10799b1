"""One process below its guard (guard.py), from asyncio."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GUARD = Path(__file__).with_name("guard.py")
# What a guard takes from the end of the grace to its own end; see KILL_DEADLINE_S there.
GUARD_MARGIN_S = 3.5


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. env is laid over this process's environment; log is where its output goes."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    log_max_bytes: int
    log_keep_files: int
    grace_s: float

    @property
    def guarded(self) -> tuple[str, ...]:
        """The command line of the guard."""
        return (
            sys.executable, "-IS", str(GUARD),
            "--log", str(self.log),
            "--log-max-bytes", str(self.log_max_bytes),
            "--log-keep", str(self.log_keep_files),
            "--grace", str(self.grace_s),
            "--", *self.argv,
        )  # fmt: skip


class Process:
    """A started command. `told` gets what the guard says: {"event": "log_failed", ...}."""

    def __init__(
        self, command: Command, guard: asyncio.subprocess.Process, told: Callable[[dict[str, Any]], None]
    ) -> None:
        self.command = command
        self.pid = 0
        self._guard = guard
        self._told = told
        self._listening = asyncio.create_task(self._listen(), name=f"guard of {command.name}")

    @classmethod
    async def start(cls, command: Command, told: Callable[[dict[str, Any]], None]) -> "Process":
        """Raises OSError when not even the guard can be started."""
        command.log.parent.mkdir(parents=True, exist_ok=True)
        guard = await asyncio.create_subprocess_exec(
            *command.guarded,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **command.env},
            start_new_session=True,  # a Ctrl-C at the terminal is for the launcher only
        )
        return cls(command, guard, told)

    @property
    def guard_pid(self) -> int:
        return self._guard.pid

    async def wait(self) -> int:
        """The exit status, once nothing of it is left: 0-255, 128 + N after signal N."""
        status = await self._guard.wait()
        await asyncio.gather(self._listening, return_exceptions=True)
        return status

    async def stop(self, grace_s: float) -> int:
        """End it and whatever it started; SIGKILL after the grace. Returns the exit status."""
        stdin = self._guard.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended by itself just now
            stdin.write(f"stop {grace_s:.3f}\n".encode())
            await stdin.drain()
        try:
            async with asyncio.timeout(grace_s + GUARD_MARGIN_S):
                return await self.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._guard.kill()
            return await self.wait()

    async def _listen(self) -> None:
        stdout = self._guard.stdout
        assert stdout is not None
        async for line in stdout:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if message.get("event") == "started":
                    self.pid = int(message["pid"])
                self._told(message)


def last_lines(log: Path, count: int = 20, max_bytes: int = 65_536) -> list[str]:
    """The end of a log; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - max_bytes))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
