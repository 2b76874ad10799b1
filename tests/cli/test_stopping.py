"""`toolkit serve` and `make serve` as processes: however they end, nothing they started is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from serving.topology import ROOT

STAND_IN = Path(__file__).with_name("stand_in_engine.py")
TOOLKIT = Path(sys.executable).with_name("toolkit")
PATIENCE_S = 30.0

pytestmark = pytest.mark.slow


class Started:
    """A launcher that has its engines up and a gateway started, which never finds a real one behind them."""

    def __init__(self, command: list[str], folder: Path) -> None:
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
        missing = {("prefill-0", "ready"), ("decode-0", "ready"), ("gateway", "starting")}

        def all_there(event: dict[str, str]) -> bool:
            missing.discard((event.get("name", ""), event["event"]))
            return not missing

        self.read_until(all_there)
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


def options(folder: Path) -> list[str]:
    engine = folder / "engine"
    engine.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {STAND_IN} "$@"\n')
    engine.chmod(0o755)
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen2"}')
    return [
        "--json", "--port", "0", "--model", str(model),
        "--set", f"engine.python={engine}", "--set", f"runs_dir={folder / 'runs'}", "--set", 'model.family="text"',
    ]  # fmt: skip


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def start(*command: str) -> Started:
        words = options(tmp_path)
        line = [*command, f"ARGS={' '.join(words)}"] if command[0] == "make" else [*command, *words]
        started.append(Started(line, tmp_path))
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
    assert (
        len(service.family) >= 7
    )  # three guards, two engines with a child each; the gateway may be just being started


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
    words = options(tmp_path)
    (tmp_path / "engine").write_text("#!/bin/sh\necho no such kernel >&2\nexit 4\n")
    done = subprocess.run([TOOLKIT, "serve", *words], capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 1
    assert "ended before it was ready (last status 4)" in done.stderr
    assert "no such kernel" in done.stderr
    assert naming(tmp_path) == []
