"""`toolkit serve` and `make serve` as processes: however they end, nothing they started is left."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from serving.topology import ROOT

TOOLKIT = Path(sys.executable).with_name("toolkit")
PATIENCE_S = 30.0

pytestmark = pytest.mark.slow


class Started:
    """A launcher whose service is up, or whose engines and gateway are just being started."""

    def __init__(self, command: list[str], folder: Path, *, early: bool) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.read_until(lambda event: event["event"] == ("starting" if early else "service_ready"))
        if early:
            self.read_until(lambda event: event.get("name") == "gateway")
        self.family = psutil.Process(self.process.pid).children(recursive=True)

    def read_until(self, wanted: Callable[[dict[str, str]], bool]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("{") and wanted(json.loads(line)):
                return
        pytest.fail("it ended early:\n" + "".join(self.lines))

    def end(self) -> None:
        """Wait until the launcher and everybody below it is gone."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout.readlines()
        self.process.wait(PATIENCE_S)
        psutil.wait_procs(self.family, timeout=PATIENCE_S)

    def left(self) -> list[psutil.Process]:
        """Whoever was below it, and whoever else bears its folder's name on the command line."""
        return [process for process in self.family if process.is_running()] + naming(self.folder)


def naming(folder: Path) -> list[psutil.Process]:
    everybody = psutil.process_iter(["cmdline"])
    return [one for one in everybody if str(folder) in " ".join(one.info["cmdline"] or ())]


def options(folder: Path, *extra_args: str) -> list[str]:
    """A service on stand-ins, each with a child in a session of its own, as SGLang has schedulers."""
    flags = json.dumps(["--helpers", "1", *extra_args])
    return [
        "--json", "--port", "0",
        "--set", "engine.kind=simulated", "--set", f"runs_dir={folder / 'runs'}", "--set", f"engine.extra_args={flags}",
    ]  # fmt: skip


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def start(*command: str, early: bool = False) -> Started:
        words = options(tmp_path)
        line = [*command, f"ARGS={shlex.join(words)}"] if command[0] == "make" else [*command, *words]
        started.append(Started(line, tmp_path, early=early))
        return started[-1]

    yield start
    for one in started:
        for process in (one.process, *one.left()):
            process.kill()
        one.end()
        assert one.process.stdout is not None
        one.process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_everything_down(start: Callable[..., Started], number: signal.Signals) -> None:
    """Ctrl-C, `kill`, a closed terminal: exit code 0 and nobody left."""
    service = start(str(TOOLKIT), "serve")
    service.process.send_signal(number)
    service.end()

    assert service.left() == []
    assert service.process.returncode == 0
    assert json.loads(service.lines[-1])["event"] == "stopped"
    assert len(service.family) >= 8  # three guards, the gateway, two engines with a child each


def test_a_signal_in_the_midst_of_starting_takes_everything_down(start: Callable[..., Started]) -> None:
    """No engine has answered yet."""
    service = start(str(TOOLKIT), "serve", early=True)
    service.process.send_signal(signal.SIGINT)
    service.end()

    assert service.left() == []
    assert service.process.returncode == 0


def test_a_killed_launcher_leaves_nothing(start: Callable[..., Started]) -> None:
    """kill -9 gives it no chance to clean up: the guards do."""
    service = start(str(TOOLKIT), "serve")
    service.process.kill()
    service.end()

    assert service.left() == []


def test_two_signals_are_as_good_as_one(start: Callable[..., Started]) -> None:
    """An impatient Ctrl-C does not break the orderly end."""
    service = start(str(TOOLKIT), "serve")
    service.process.send_signal(signal.SIGINT)
    service.read_until(lambda event: event["event"] == "stopping")
    service.process.send_signal(signal.SIGINT)
    service.end()

    assert service.left() == []
    assert service.process.returncode == 0


@pytest.mark.parametrize("how", ["ctrl_c", "sigterm", "sigkill"])
def test_make_serve_ends_with_make(start: Callable[..., Started], how: str) -> None:
    """At a terminal Ctrl-C reaches the whole group; SIGTERM and SIGKILL reach make only."""
    service = start("make", "--no-print-directory", "serve")
    if how == "ctrl_c":
        os.killpg(service.process.pid, signal.SIGINT)
    else:
        service.process.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGKILL)
    service.end()

    assert service.left() == []


def test_an_engine_that_crashes_at_the_start_ends_the_service(tmp_path: Path) -> None:
    """Exit code 1, the end of its log on stderr, nobody left."""
    words = options(tmp_path, "--no-such-kernel")
    done = subprocess.run([TOOLKIT, "serve", *words], capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 1
    assert "ended before it was ready (last status 2)" in done.stderr
    assert "unrecognized arguments: --no-such-kernel" in done.stderr
    assert naming(tmp_path) == []
