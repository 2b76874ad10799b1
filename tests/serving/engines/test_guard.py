"""The guard, run as the launcher runs it, around small shell and Python commands."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from serving.engines.process import GUARD

pytestmark = pytest.mark.slow  # each starts processes

PATIENCE_S = 20.0  # nothing here takes this long; a test that waits for it has failed


def until(true: Callable[[], object], what: str) -> None:
    """Wait for something that another process is about to do."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.005)


def dead(process: psutil.Process) -> bool:
    """Whether it has ended. A zombie has: whoever inherited it has not looked yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Guarded:
    """A running guard."""

    def __init__(self, log: Path, script: str, *options: str) -> None:
        command = [sys.executable, "-c", textwrap.dedent(script)]
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-IS", str(GUARD), "--log", str(log), *options, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={
                **os.environ,
                "TMPDIR": str(log.parent),
            },  # a guard that a test kills leaves its folder there
        )
        assert self.process.stdout is not None
        self.child = psutil.Process(json.loads(self.process.stdout.readline())["pid"])

    def says(self) -> dict[str, object]:
        assert self.process.stdout is not None
        message: dict[str, object] = json.loads(self.process.stdout.readline())
        return message

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait_for(self, word: str) -> str:
        until(lambda: word in self.text() and self.text().endswith("\n"), f"{word!r} in the log")
        return self.text()


Start = Callable[..., Guarded]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Guarded] = []

    def start(script: str, *options: str) -> Guarded:
        running.append(Guarded(tmp_path / "engine.log", script, *options))
        return running[-1]

    yield start
    for guarded in running:
        guarded.process.kill()
        guarded.process.wait()
        for stream in (guarded.process.stdin, guarded.process.stdout):
            assert stream is not None
            stream.close()


FAMILY = """
    import subprocess, sys, time, signal
    {prepare}
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print("child", child.pid, flush=True)
    time.sleep(600)
"""


def grandchild(guarded: Guarded) -> psutil.Process:
    return psutil.Process(int(guarded.wait_for("child").split()[1]))


def test_output_reaches_the_log_and_the_exit_status_is_the_commands(start: Start) -> None:
    """Both streams are kept, and the guard ends as its command did."""
    guarded = start("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")

    assert guarded.process.wait(PATIENCE_S) == 7
    assert set(guarded.text().split()) == {"out", "err"}


def test_a_command_that_a_signal_killed_reports_128_plus_its_number(start: Start) -> None:
    """As a shell would."""
    guarded = start("import os; os.kill(os.getpid(), 9)")

    assert guarded.process.wait(PATIENCE_S) == 137


def test_a_command_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    """Status 127 and the reason in the log."""
    log = tmp_path / "x.log"
    done = subprocess.run(
        [sys.executable, "-IS", str(GUARD), "--log", str(log), "--", "/no/such/engine"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
    )

    assert done.returncode == 127
    assert "/no/such/engine: No such file" in log.read_text()


@pytest.mark.parametrize("how", ["launcher_gone", "told", "sigterm"])
def test_stopping_ends_the_whole_family(start: Start, how: str) -> None:
    """The end of the pipe (so also a SIGKILL of the launcher), a word, or SIGTERM: nobody is left."""
    guarded = start(FAMILY.format(prepare=""))
    child, below = guarded.child, grandchild(guarded)
    assert guarded.process.stdin is not None
    if how == "launcher_gone":
        guarded.process.stdin.close()
    elif how == "told":
        guarded.process.stdin.write(b"stop 5\n")
        guarded.process.stdin.flush()
    else:
        guarded.process.terminate()

    assert guarded.process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert dead(child)
    assert dead(below)


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(start: Start) -> None:
    """The grace that comes with the word counts, not the one the guard was started with."""
    guarded = start(FAMILY.format(prepare="signal.signal(signal.SIGTERM, signal.SIG_IGN)"), "--grace", "600")
    below = grandchild(guarded)
    assert guarded.process.stdin is not None
    guarded.process.stdin.write(b"stop 0.05\n")
    guarded.process.stdin.flush()

    assert guarded.process.wait(PATIENCE_S) == 137
    assert dead(below)


def test_a_command_that_ends_takes_its_children_along(start: Start) -> None:
    """SGLang's scheduler must not outlive its main process, though it is in a session of its own."""
    guarded = start(FAMILY.format(prepare=""))
    below = grandchild(guarded)
    guarded.child.kill()

    assert guarded.process.wait(PATIENCE_S) == 137
    assert dead(below)


def test_killing_the_guard_kills_the_command(start: Start) -> None:
    """The kernel sees to it."""
    guarded = start("import time; time.sleep(600)")
    guarded.process.kill()

    guarded.child.wait(PATIENCE_S)


def test_the_log_turns_over(start: Start, tmp_path: Path) -> None:
    """Old files are renamed .1, .2, and no more than asked are kept."""
    guarded = start(
        "for n in range(4000): print(f'{n:04} ' + 'x' * 995)", "--log-max-bytes", "1000000", "--log-keep", "2"
    )

    assert guarded.process.wait(PATIENCE_S) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["engine.log", "engine.log.1", "engine.log.2"]
    assert all(path.stat().st_size <= 1_000_000 for path in tmp_path.iterdir())
    assert guarded.text().splitlines()[-1].startswith("3999 x")


def test_a_full_disk_loses_output_and_nothing_else(start: Start, tmp_path: Path) -> None:
    """The command goes on, the loss is told at once, counted, and written down when there is room again."""
    log, go = tmp_path / "engine.log", tmp_path / "go"
    log.symlink_to("/dev/full")
    guarded = start(f"""
        import os, time
        os.write(1, b"x" * 499 + b"\\n")
        while not os.path.exists({str(go)!r}):
            time.sleep(0.005)
        print("here again", flush=True)
    """)

    assert "No space left on device" in str(guarded.says()["error"])

    log.unlink()  # there is room again
    go.touch()

    assert guarded.process.wait(PATIENCE_S) == 0
    assert guarded.says() == {"event": "log_restored", "lost_bytes": 500}
    assert guarded.text() == "[500 bytes of output were lost: the log could not be written]\nhere again\n"


def test_the_guard_needs_nothing_of_this_project() -> None:
    """It is run isolated, from any Python: only the standard library is imported."""
    done = subprocess.run(
        [sys.executable, "-IS", "-X", "importtime", str(GUARD), "--help"], capture_output=True, text=True
    )
    names = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}

    assert names - {"imported package"} <= set(sys.stdlib_module_names) | {"_distutils_hack"}


def test_no_descriptor_leaks_into_the_command(start: Start) -> None:
    """An engine must not hold its launcher's pipes open."""
    guarded = start(
        "import os; print('fds', *sorted(os.listdir('/proc/self/fd')), flush=True); import time; time.sleep(600)"
    )
    shown = guarded.wait_for("fds").split()[1:]

    assert [fd for fd in shown if int(fd) > 3] == []
    assert Path(f"/proc/{guarded.child.pid}/fd/0").readlink() == Path("/dev/null")


def test_temporary_files_and_sglangs_shared_memory_are_removed(start: Start) -> None:
    """SGLang leaves sockets in TMPDIR and segments in /dev/shm, even when it ends in order."""
    guarded = start("""
        import mmap, os, pathlib, tempfile, time
        name = tempfile.NamedTemporaryFile(delete=False).name
        loads = pathlib.Path(f"/dev/shm/sglang_loads_{os.path.basename(name)}.shm")
        image = pathlib.Path(f"/dev/shm/sgl_shm_mm_{os.getpid()}_0a1b2c3d")
        loads.write_bytes(b"x")
        image.touch()
        with loads.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 1)
        print("made", name, loads, image, flush=True)
        time.sleep(600)
    """)
    made = [Path(name) for name in guarded.wait_for("made").split()[1:]]
    there = [path.exists() for path in made]
    guarded.process.terminate()
    guarded.process.wait(PATIENCE_S)

    assert there == [True, True, True]
    assert made[0].parent.name.startswith("mm-serving-")
    assert [path for path in (*made, made[0].parent) if path.exists()] == []


def test_a_killed_commands_image_features_are_removed(start: Start) -> None:
    """They are megabytes each, and would fill /dev/shm crash by crash."""
    guarded = start("""
        import os, pathlib
        image = pathlib.Path(f"/dev/shm/sgl_shm_mm_{os.getpid()}_0a1b2c3d")
        image.touch()
        print("made", image, flush=True)
        os.kill(os.getpid(), 9)
    """)

    assert guarded.process.wait(PATIENCE_S) == 137
    assert not Path(guarded.text().split()[1]).exists()


def test_others_shared_memory_is_left_alone(start: Start, tmp_path: Path) -> None:
    """Another service may run on this machine."""
    others = Path(f"/dev/shm/sgl_shm_mm_1_{tmp_path.name[-8:]}")
    others.touch()
    try:
        assert start("pass").process.wait(PATIENCE_S) == 0
        assert others.exists()
    finally:
        others.unlink()
