"""`toolkit serve` as a process, for as long as a block lasts; and further gateways before the same engines."""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from serving.service import Service

ROOT = Path(__file__).resolve().parents[2]
TOOLKIT = Path(sys.executable).parent / "toolkit"


def asked(parser: argparse.ArgumentParser, name: str) -> tuple[argparse.Namespace, Path]:
    """Options of a measurement that starts services, and the folder where they run. From now on SIGTERM ends those too."""
    parser.add_argument("--engine", choices=("auto", "cpu", "gpu", "simulated"), default="auto")
    parser.add_argument("--work", type=Path, help="where services run; default: a temporary folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work: Path = options.work or Path(tempfile.mkdtemp(prefix=f"{name}-"))
    work.mkdir(parents=True, exist_ok=True)
    return options, work


@dataclass(frozen=True)
class Front:
    """A gateway: what it serves, and where it writes."""

    service: Service
    run_dir: Path

    @property
    def url(self) -> str:
        return self.service.gateway_url

    @property
    def journal(self) -> Path:
        return self.run_dir / "journal" / "requests.jsonl"


@contextmanager
def served(work: Path, settings: Sequence[str], pairs: int = 1) -> Iterator[Front]:
    """Engines and a gateway; so many pairs are in rotation."""
    with _front(work, settings, (), pairs) as front:
        yield front


@contextmanager
def attached(work: Path, service: Service, settings: Sequence[str] = (), decodes: int = 1) -> Iterator[Front]:
    """Another gateway before its prefill and the first of its decodes."""
    prefill = service.prefills[0]
    engines = ["--attach-prefill", f"{prefill.url}?bootstrap_port={prefill.bootstrap_port}"]
    for decode in service.decodes[:decodes]:
        engines += ["--attach-decode", decode.url]
    if Path(service.model_path, "config.json").is_file():
        model = [f"model.path={service.model_path}"]
    else:
        told = service.config.model
        model = [
            f"model.family={told.family}",
            f"model.min_pixels={told.min_pixels}",
            f"model.max_pixels={told.max_pixels}",
        ]
    named = f"model.served_name={service.model_name}"
    with _front(work, [*model, named, *settings], engines, decodes) as front:
        yield front


@contextmanager
def _front(work: Path, settings: Sequence[str], options: Sequence[str], pairs: int) -> Iterator[Front]:
    chosen = [word for one in (f"runs_dir={work / 'runs'}", *settings) for word in ("--set", one)]
    command = [str(TOOLKIT), "serve", "--json", "--port", "0", *options, *chosen]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            events = (json.loads(line) for line in process.stdout)
            if not any(event["event"] == "service_ready" for event in events):
                raise SystemExit(f"the service did not become ready: see the logs below {work}/runs")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            run_dir = (work / "runs/latest").resolve()
            front = Front(Service.read(run_dir), run_dir)
            wait_for_pairs(front.url, pairs)
            yield front
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def wait_for_pairs(url: str, count: int, at_most_s: float = 120.0) -> None:
    """Until so many pairs are in rotation."""
    end = time.monotonic() + at_most_s
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
                if sum(json.load(answer)["pairs"].values()) >= count:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{count} pairs were not in rotation within {at_most_s:g} s")
