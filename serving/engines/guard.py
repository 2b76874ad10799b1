"""The direct parent of one engine (or of the gateway): nothing it started outlives it, or the launcher.

    python -IS guard.py --log FILE [--log-max-bytes N] [--log-keep N] [--grace SECONDS] -- COMMAND...

Standard input is a pipe held by the launcher. Its end means "stop", and it ends also when the launcher is killed
with SIGKILL; the line "stop SECONDS" sets the grace first. Then, or on SIGTERM or SIGINT:

    SIGTERM to the command -> grace -> SIGKILL to it -> a moment -> SIGKILL to every descendant

Only the command gets SIGTERM: SGLang's main process takes its schedulers down in order, but treats one that ends
first as a crash and then waits 5 s. The moment is for helpers that end and clean up when their parent is gone, as
multiprocessing's resource tracker does. The same happens when the command ends by itself: its descendants would
hold its ports. Orphans come back to the guard because it is a subreaper. Should the guard itself be killed, the
kernel kills the command.

The command's temporary files go into a folder of its own (TMPDIR), which the guard removes at the end, with the
shared memory that SGLang leaves behind, even when it ends in order.

The command's output goes into FILE, which turns over at N bytes. A full disk loses output and nothing else: the
pipe is drained on, the lost bytes are counted and told in the file when there is room again.

Standard output carries one JSON object a line: {"event": "started", "pid": P}, {"event": "log_failed", "error": E},
{"event": "log_restored", "lost_bytes": N}. The exit status is the command's, or 128 + N after signal N.

It runs without this project on its path, so it uses the standard library only.
"""

import argparse
import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterable
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
MOMENT_S = 0.5
KILL_DEADLINE_S = 3.0  # a process that SIGKILL does not end within this is stuck in the kernel
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (the kernel's place for it)
READ_BYTES = 65_536


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def tell(event: str, **fields: object) -> None:
    """One line to the launcher, who may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")


class Log:
    """A file that turns over by size and survives a full disk."""

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self._path, self._max_bytes, self._keep = path, max_bytes, keep
        self._fd = -1
        self._size = 0
        self._lost = 0

    def write(self, data: bytes) -> None:
        try:
            if self._lost:
                self._put(
                    f"[{self._lost} bytes of output were lost: the log could not be written]\n".encode()
                )
                tell("log_restored", lost_bytes=self._lost)
                self._lost = 0
            self._put(data)
        except OSError as error:
            if not self._lost:
                tell("log_failed", error=f"{self._path}: {error.strerror}")
            self._lost += len(data)
            self._close()

    def _close(self) -> None:
        """The next write opens the file anew: by then it may have been moved away to make room."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _put(self, data: bytes) -> None:
        if self._fd >= 0 and self._size + len(data) > self._max_bytes:
            self._close()
            self._turn_over()
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._size = os.fstat(self._fd).st_size
        while data:
            written = os.write(self._fd, data)
            self._size += written
            data = data[written:]

    def _turn_over(self) -> None:
        """FILE becomes FILE.1, FILE.1 becomes FILE.2, and so on; the oldest goes."""
        for number in range(self._keep, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)


def descendants(of: int) -> list[int]:
    """Process ids below `of`, by /proc; zombies excluded."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                state, parent = text.rpartition(")")[2].split()[
                    :2
                ]  # the name before may hold spaces and parentheses
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    todo = [of]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def shared_memory_of(pids: Iterable[int]) -> set[Path]:
    """SGLang's segments that these processes have mapped: load figures (sglang/srt/managers/load_snapshot.py:303)."""
    found: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
                _, slash, name = line.partition(f"{SHARED_MEMORY}/sgl")
                if slash:
                    found.add(SHARED_MEMORY / f"sgl{name.removesuffix(' (deleted)')}")
    return found


def shared_memory_by(pids: Collection[int]) -> set[Path]:
    """Segments that bear these processes' ids: image features (sglang/srt/utils/stale_shm_cleanup.py:32)."""
    names = (entry.name for entry in SHARED_MEMORY.glob("sgl_shm_*_*_*"))
    return {
        SHARED_MEMORY / name for name in names if (pid := name.split("_")[-2]).isdigit() and int(pid) in pids
    }


def spawn(command: list[str], output: int, temporary: Path) -> int:
    """Start the command in a session of its own, tied to this process by the kernel; returns its id.

    Returns once the command runs: before that its process group does not exist, and a signal to it would be lost.
    """
    guard = os.getpid()
    running, still_here = os.pipe()
    pid = os.fork()
    if pid:
        os.close(still_here)
        os.read(running, 1)  # ends when exec closes the other end
        os.close(running)
        return pid
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["TMPDIR"] = str(temporary)
        os.execvp(command[0], command)  # noqa: S606 (the launcher's own command, no shell)
    except OSError as error:
        os.write(output, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(127)


class Guard:
    """One command from start to its last descendant's end."""

    def __init__(self, command: list[str], log: Log, grace_s: float) -> None:
        self._command, self._log, self._grace_s = command, log, grace_s
        self._selector = selectors.DefaultSelector()
        self._output = -1
        self._child = 0
        self._family: set[int] = set()  # process ids and shared memory, for what they leave behind
        self._segments: set[Path] = set()
        self._status: int | None = None
        self._kill_at: float | None = None

    def run(self) -> int:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        signals, wake = os.pipe()
        os.set_blocking(signals, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # the wakeup pipe carries them
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._output, child_side = os.pipe()
        os.set_blocking(self._output, False)
        temporary = Path(tempfile.mkdtemp(prefix="mm-serving-"))
        self._child = spawn(self._command, child_side, temporary)
        os.close(child_side)
        tell("started", pid=self._child)

        self._selector.register(signals, selectors.EVENT_READ)
        self._selector.register(self._output, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        while self._status is None:
            for key, _ in self._selector.select(self._patience_s()):
                if key.fd == self._output:
                    self._copy_output()
                elif key.fd == 0:
                    self._listen()
                else:
                    self._take_signals(os.read(signals, READ_BYTES))
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                break
        self._kill_everything()
        while self._copy_output():
            pass
        shutil.rmtree(temporary, ignore_errors=True)
        for segment in self._segments | shared_memory_by(self._family):
            segment.unlink(missing_ok=True)
        return 128 + signal.SIGKILL if self._status is None else self._status

    def _patience_s(self) -> float | None:
        return None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _copy_output(self) -> bool:
        """Move what there is; False at the end of it."""
        try:
            data = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._output)
            return False
        self._log.write(data)
        return True

    def _listen(self) -> None:
        """A word from the launcher, or its end."""
        data = os.read(0, 4096)
        if not data:
            self._selector.unregister(0)
            self._stop()
        for line in data.decode(errors="replace").splitlines():
            verb, _, value = line.partition(" ")
            if verb == "stop":
                with contextlib.suppress(ValueError):
                    self._grace_s = float(value)
                self._stop()

    def _take_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._stop()
        self._reap()

    def _reap(self) -> None:
        """Collect whoever ended: the command, and orphans that came back to us."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._child:
                    code = os.waitstatus_to_exitcode(status)
                    self._status = code if code >= 0 else 128 - code

    def _stop(self) -> None:
        """Ask once; the grace runs from the first asking."""
        if self._kill_at is None and self._status is None:
            self._kill_at = time.monotonic() + self._grace_s
            self._know_family()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGTERM)

    def _know_family(self) -> None:
        """Look while they are there: who they are and what they share."""
        self._family |= {self._child, *descendants(os.getpid())}
        self._segments |= shared_memory_of(self._family)

    def _kill_everything(self) -> None:
        """SIGKILL to the command; after a moment to whoever is left, until nobody is: a dying process may still fork."""
        self._know_family()
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
        now = time.monotonic()
        moment, deadline = now + MOMENT_S, now + KILL_DEADLINE_S
        while (left := descendants(os.getpid())) and time.monotonic() < deadline:
            for pid in left if time.monotonic() >= moment else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            while self._copy_output():
                pass
            time.sleep(0.01)
            self._reap()
        if left:
            self._log.write(f"[processes {left} did not end at SIGKILL]\n".encode())


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="guard")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--log-max-bytes", type=int, default=32_000_000)
    parser.add_argument("--log-keep", type=int, default=3)
    parser.add_argument("--grace", type=float, default=4.0)
    os.set_blocking(1, False)  # a launcher that does not read must not stop us
    own, command = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    options = parser.parse_args(own)
    return Guard(command, Log(options.log, options.log_max_bytes, options.log_keep), options.grace).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
