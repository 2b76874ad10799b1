"""A real service as a user starts it: `make serve` in a process group of its own, seen from outside only."""

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from serving.service import EngineEndpoint, Service

ROOT = Path(__file__).resolve().parents[2]
PHOTOS = ROOT / "workloads" / "assets" / "photos"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: str, condition: Any, timeout_s: float, every_s: float = 0.1) -> Any:
    """Poll until `condition()` is true and return it; AssertionError that says what was waited for."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with suppress(httpx.HTTPError, OSError, psutil.Error):
            found = condition()
            if found:
                return found
        time.sleep(every_s)
    raise AssertionError(f"waited {timeout_s} s for {what}")


@dataclass
class Running:
    """A started service: its process group, output, description."""

    process: subprocess.Popen[bytes]
    output: Path
    runs: Path
    service: Service

    @property
    def url(self) -> str:
        return self.service.gateway_url

    @property
    def run_dir(self) -> Path:
        return (self.runs / "latest").resolve()

    def engine(self, name: str) -> EngineEndpoint:
        return next(engine for engine in self.service.engines if engine.name == name)

    def root_of(self, name: str) -> psutil.Process:
        """The main process of an engine, or of the gateway: the one that listens on its port."""
        url = self.url if name == "gateway" else self.engine(name).url
        return listener(int(url.rpartition(":")[2]))

    def metric(self, name: str, base: str | None = None) -> float:
        """The sum of a metric's series at the gateway, or at another /metrics."""
        text = httpx.get(f"{base or self.url}/metrics", timeout=10).text
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values))

    def ready(self) -> bool:
        return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200

    def all_pairs_ready(self) -> bool:
        return all(httpx.get(f"{self.url}/readyz", timeout=5).json()["pairs"].values())

    def idle(self) -> bool:
        gauges = (
            "toolkit_requests_preparing",
            "toolkit_requests_waiting",
            "toolkit_requests_in_flight",
            "toolkit_pair_in_flight",
            "toolkit_kv_leased_tokens",
        )
        return all(self.metric(name) == 0 for name in gauges)

    def chat(self, **fields: Any) -> httpx.Response:
        headers = fields.pop("headers", {})
        body = {"model": self.service.model_name, "messages": [{"role": "user", "content": "hi"}], **fields}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

    def family(self) -> list[psutil.Process]:
        """Every process that the launcher started, directly or not."""
        return psutil.Process(self.process.pid).children(recursive=True)


def listener(port: int) -> psutil.Process:
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return psutil.Process(connection.pid)
    raise AssertionError(f"nobody listens on {port}")


def start(folder: Path, settings: str, timeout_s: float) -> Running:
    """`make serve` with a serve.toml; returns when the service says it is ready. Prints the output if it is not."""
    runs = folder / "runs"
    config = folder / "serve.toml"
    config.write_text(f'runs_dir = "{runs}"\n{settings}')
    output = folder / "serve.out"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            ["make", "-C", str(ROOT), "--no-print-directory", "serve", f"ARGS=--config {config}"],
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        wait_for(
            "the ready message",
            lambda: process.poll() is not None or "curl" in output.read_text(errors="replace"),
            timeout_s,
        )
        assert process.poll() is None, "make serve ended"
        return Running(process, output, runs, Service.read(runs / "latest"))
    except AssertionError:
        print(output.read_text(errors="replace")[-5000:])
        for log in sorted(runs.glob("latest/logs/*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}")
        end_group(process)
        raise


def interrupt(running: Running) -> None:
    """Ctrl-C: SIGINT to the whole foreground group, as a terminal sends it."""
    os.killpg(running.process.pid, signal.SIGINT)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Last resort of a fixture."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(15)


def still_alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still live; a zombie does not."""
    alive = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive
