"""Three ways to the same pair: straight, through the gateway, through the naive front; and what their processes spend."""

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from proof_payloads import Body

from serving.attempt import Limits, Pair, Progress
from serving.dispatch import Dispatcher
from serving.engine_body import Rendezvous
from serving.plan_process import below, spent
from serving.service import Service
from serving.stream import Kind, StreamReader
from serving.supervisor import processes
from toolkit.core.clock import SystemClock
from toolkit.core.errors import ToolkitError
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError
from toolkit.core.http.sse import EventSplitter

HERE = Path(__file__).parent
TOOLKIT = Path(sys.executable).parent / "toolkit"
BARE, GATEWAY, NAIVE = "bare pair", "gateway", "naive front"
ANSWER_S = 300.0
SAMPLE_S = 0.05
MB = 1e6


@dataclass(frozen=True)
class Shot:
    """One answer. ttft_s: None where no token came. code: of an error body, or the error's own."""

    status: int
    code: str = ""
    ttft_s: float | None = None


@dataclass
class Front(ABC):
    """A way to the pair. pid: of its process; 0 where there is none."""

    name: str
    pid: int = 0

    @abstractmethod
    async def send(self, body: Body, batch: bool) -> Shot:
        """batch: in the class that waits for five minutes, else in the default one."""


@dataclass
class Bare(Front):
    """Both legs posted from here, as the gateway's dispatcher does, and nothing else."""

    pair: Pair | None = None
    client: HttpClient = field(default_factory=HttpClient)

    def __post_init__(self) -> None:
        self._clock = SystemClock()
        self._dispatcher = Dispatcher(self.client, self._clock, Rendezvous(random.Random()))

    async def send(self, body: Body, batch: bool) -> Shot:
        del batch
        assert self.pair is not None
        progress = Progress()
        began = self._clock.monotonic()
        limits = Limits(began + ANSWER_S, ANSWER_S, ANSWER_S)

        async def forward(piece: bytes) -> None:
            del piece

        try:
            await self._dispatcher.stream(self.pair, body, limits, progress, forward)  # type: ignore[arg-type]
        except ToolkitError as error:
            return Shot(error.status, error.code.code)
        assert progress.first_token_at is not None
        return Shot(200, "", progress.first_token_at - began)


@dataclass
class Http(Front):
    """A server in front of the pair."""

    url: str = ""
    client: HttpClient = field(default_factory=HttpClient)

    async def send(self, body: Body, batch: bool) -> Shot:
        headers = [("content-type", "application/json"), *([("x-slo-class", "batch")] if batch else [])]
        began, first = time.monotonic(), None
        splitter, reader = EventSplitter(), StreamReader(self.name)
        try:
            async with asyncio.timeout(ANSWER_S):
                response = await self.client.send(
                    "POST", f"{self.url}/v1/chat/completions", headers, body.whole
                )
                if response.status != 200:
                    return Shot(response.status, _code(await response.read(1_000_000)))
                async for chunk, at in response.chunks():
                    for event in splitter.feed(chunk):
                        if reader.read(event.data) is Kind.TOKEN and first is None:
                            first = at
        except (TransportError, TimeoutError) as error:
            return Shot(0, type(error).__name__)
        except ToolkitError as error:
            return Shot(error.status, error.code.code)
        return Shot(200, "", None if first is None else first - began)


def _code(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


@dataclass
class Stand:
    """All that runs: the fronts by name, the engines' processes."""

    fronts: Mapping[str, Front]
    engines: tuple[int, ...]
    model: str

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of the engines together, and of each front that is a process."""
        found = {"engines": sum(spent(pid).whole_s for pid in self.engines)}
        found |= {front.name: spent(front.pid).whole_s for front in self.fronts.values() if front.pid}
        return found


@contextmanager
def stand(work: Path, kind: str) -> Iterator[Stand]:
    """`toolkit serve` on a pair of that kind with no image cache, and the naive front beside it, until the block ends."""
    command = [str(TOOLKIT), "serve", "--json", "--port", "0"]
    command += [
        "--set",
        f"engine.kind={kind}",
        "--set",
        "access.cache_mb=0",
        "--set",
        "engine.ready_timeout_s=900",
    ]
    with subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            events = (json.loads(line) for line in process.stdout)
            if not any(event["event"] == "service_ready" for event in events):
                raise SystemExit(f"the service did not become ready: see the logs below {work}/runs")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            run_dir = (work / "runs/latest").resolve()
            service = Service.read(run_dir)
            pids = {one["name"]: int(one["pid"]) for one in processes(run_dir)}
            pair = Pair(service.prefills[0], service.decodes[0])
            with _naive(run_dir, work / "naive.log") as (naive_pid, naive_url):
                fronts: dict[str, Front] = {
                    BARE: Bare(BARE, pair=pair),
                    GATEWAY: Http(GATEWAY, pids["gateway"], service.gateway_url),
                    NAIVE: Http(NAIVE, naive_pid, naive_url),
                }
                yield Stand(fronts, (pids[pair.prefill.name], pids[pair.decode.name]), service.model_name)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@contextmanager
def _naive(run_dir: Path, log: Path) -> Iterator[tuple[int, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(HERE / "proof_naive.py"), str(run_dir), str(port)]
    with log.open("wb") as sink, subprocess.Popen(command, stdout=sink, stderr=sink) as process:
        try:
            for _ in range(200):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if process.poll() is not None:
                    raise SystemExit(f"the naive front ended: {log.read_text()[-1000:]}")
                time.sleep(0.1)
            yield process.pid, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


class Peak:
    """The most memory that a process and those below it have together while the block runs, MB over its begin.

    Proportional set size, read every 50 ms: what several processes share is counted once.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most_mb = self.before_mb = 0.0

    def __enter__(self) -> "Peak":
        if self._pid:
            self.most_mb = self.before_mb = self._now()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._pid:
            self._thread.join()

    @property
    def growth_mb(self) -> float | None:
        return self.most_mb - self.before_mb if self._pid else None

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.most_mb = max(self.most_mb, self._now())

    def _now(self) -> float:
        total = 0
        for pid in (self._pid, *below(self._pid)):
            with suppress(OSError, StopIteration, ProcessLookupError):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total * 1024 / MB


def ready(url: str) -> bool:
    """Whether a gateway has a pair in rotation."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
