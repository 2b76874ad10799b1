"""A service on the CPU pair, and routers in front of the same pair: started, waited for, ended."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLKIT = Path(sys.executable).parent / "toolkit"
BUSY = ("sglang:num_queue_reqs", "sglang:num_running_reqs", "sglang:num_prefill_bootstrap_queue_reqs",
        "sglang:num_prefill_inflight_queue_reqs", "sglang:num_decode_prealloc_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs")  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """The engines that everybody shares."""

    gateway: str
    prefill: str
    bootstrap_port: int
    decode: str
    simulated: bool

    @property
    def urls(self) -> tuple[str, str]:
        return (self.prefill, self.decode)


@dataclass(frozen=True)
class Front:
    """Who is loaded. scrape: pages beside its own that the engines' names do not tell of."""

    name: str
    url: str
    scrape: tuple[str, ...] = ()


@contextmanager
def service(work: Path, settings: Sequence[str]) -> Iterator[Pair]:
    """`toolkit serve` on whatever engines this machine has, until the block ends."""
    chosen = [word for one in settings for word in ("--set", one)]
    command = [str(TOOLKIT), "serve", "--json", "--port", "0", *chosen]
    with subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            ready = next(
                (event for event in map(json.loads, process.stdout) if event["event"] == "service_ready"),
                None,
            )
            if ready is None:
                raise SystemExit("the service did not become ready; see the logs below " + str(work / "runs"))
            described = json.loads((work / "runs/latest/service.json").read_text(encoding="utf-8"))
            by_role = {engine["role"]: engine for engine in described["engines"]}
            prefill, decode = by_role["prefill"], by_role["decode"]
            yield Pair(
                described["gateway_url"],
                prefill["url"],
                prefill["bootstrap_port"],
                decode["url"],
                ready["simulated"],
            )
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def environment(folder: Path, package: str) -> Path:
    """The bin folder of an environment that has the package. Routers share the name of a script, so each has its own."""
    home = folder / package.replace("==", "-")
    if not (home / "ready").exists():
        print(f"installing {package} into {home}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin/python"), "-m", "pip", "install", "-q", package], check=True)
        (home / "ready").touch()
    return home / "bin"


@contextmanager
def router(name: str, launch: Sequence[str], pair: Pair, log: Path) -> Iterator[Front]:
    """A router in PD mode before that pair, with the retries, breakers and queues it has by itself."""
    port, metrics = _free_port(), _free_port()
    command = [
        *launch,
        *("--pd-disaggregation", "--policy", "round_robin"),
        *("--prefill", pair.prefill, str(pair.bootstrap_port), "--decode", pair.decode),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)),
    ]
    with (
        log.open("wb") as sink,
        subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True) as process,
    ):
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_ready(url, process, log)
            yield Front(name, url, (*pair.urls, f"http://127.0.0.1:{metrics}"))
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def wait_idle(pair: Pair, at_most_s: float) -> float | None:
    """How long the engines took until nothing was in them; None when something still is."""
    began = time.monotonic()
    while time.monotonic() < began + at_most_s:
        if all(_busy(url) == 0 for url in pair.urls):
            return time.monotonic() - began
        time.sleep(1)
    return None


def _busy(url: str) -> float:
    try:
        page = _get(f"{url}/metrics").decode()
    except OSError:
        return 1.0  # too busy to say so
    lines = [line for line in page.splitlines() if line.partition("{")[0] in BUSY]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _wait_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(120):
        if process.poll() is not None:
            break
        try:
            _get(f"{url}/readiness")
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise SystemExit(f"{url} did not become ready: see {log}")


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
