"""Load generators side by side: what each delivers, how wrong its TTFT is, what an event costs it. One run, one server.

    python benchmarks/loadgen/compare.py [--seconds 4] [--repeats 2] [--with-aiperf] [--with-guidellm]

The fixed-schedule server (workloads/fixed_server.py: 33 events of 228 B, TTFT 100 ms, ITL 10 ms) runs on one core, one
client at a time alone on another, all with the same Poisson arrivals. TTFT error: the client's TTFT from its send, less
the server's time between the first byte read and the first event written, of the same request. Where a client does not
tell which answer was which (locust's iter_lines, aiperf, guidellm) the server's median is taken off instead. CPU is the
client's own, all its processes. Of the repeats the one with the smaller p99 is shown: other work can only add to it.

Peers live in environments of their own below --environments, made on the first run.
"""

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import run_aiperf, run_guidellm

from toolkit.core.http.client import HttpClient
from toolkit.core.slo import percentile, quantile
from workloads.fixed_server import Schedule, Stamps, read_stamps
from workloads.selfcheck import FixedServer

HERE = Path(__file__).parent
RESULT = HERE.parent / "results" / "loadgen.md"
OURS = "toolkit bench"
PEERS = ("aiohttp==3.14.5", "locust==2.47.0", "uvloop==0.23.0", "orjson")
TEXT_BYTES, IMAGE_BYTES = 400, 5 * 1_530_000  # an image: a 1080p photo's data URI
RATES = (50, 200, 400, 700)
PACES = (50, 200, 800, 2000)
START_REQUESTS = 10  # of a run whose CPU stands for a tool's start-up
TOO_LATE_S = 0.5  # a client whose slip passes this is not asked for more


@dataclass(frozen=True)
class Row:
    """One client at one rate."""

    client: str
    rate: float
    asked: int
    done: int
    delivered: float  # answers begun and ended / asked
    slip_p99_ms: float | None
    error_p50_ms: float
    error_p99_ms: float
    firm: bool
    us_per_event: float
    core: float

    @property
    def saturated(self) -> bool:
        return self.delivered < 0.99 or (self.slip_p99_ms or 0.0) > TOO_LATE_S * 1e3


def arrivals(rate: float, seconds: float) -> list[float]:
    rng, times, at = random.Random(7), [], 0.0
    while (at := at + rng.expovariate(rate)) < seconds:
        times.append(at)
    return times


async def _stamps(url: str) -> dict[str, Stamps]:
    client = HttpClient()
    body = await (await client.send("GET", f"{url}/stamps")).read()
    await client.close()
    return {stamp.answer: stamp for stamp in read_stamps(body)}


def stamps_of(url: str) -> dict[str, Stamps]:
    return asyncio.run(_stamps(url))


def run_client(python: str, name: str, task: dict[str, Any], core: int) -> dict[str, Any]:
    command = ["taskset", "-c", str(core), python, str(HERE / "clients.py"), name]
    done = subprocess.run(
        command,
        check=False,
        input=json.dumps(task),
        capture_output=True,
        text=True,
        timeout=180,
        start_new_session=True,
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.rindex('{"cpu_s"') :])


def judge(
    name: str, rate: float, task: dict[str, Any], saw: dict[str, Any], stamps: dict[str, Stamps]
) -> Row:
    there = {answer: s.written_at[0] - s.received_at for answer, s in stamps.items()}
    typical = percentile(there.values(), 0.5) if there else 0.0
    rows = saw["rows"]
    done = [r for r in rows if r[4] == task["events"] and r[3]]
    errors = [(first - sent - there.get(answer, typical)) * 1e3 for answer, _, sent, first, _ in done] or [
        0.0
    ]
    slips = [(sent - due) * 1e3 for _, due, sent, _, _ in rows if sent] or [0.0]
    p99 = quantile(errors, 0.99)
    events = sum(r[4] for r in rows)
    return Row(
        client=name,
        rate=rate,
        asked=len(task["times"]),
        done=len(done),
        delivered=len(done) / len(task["times"]),
        slip_p99_ms=percentile(slips, 0.99),
        error_p50_ms=percentile(errors, 0.5),
        error_p99_ms=percentile(errors, 0.99),
        firm=p99 is not None and p99.firm,
        us_per_event=saw["cpu_s"] / max(1, events) * 1e6,
        core=saw["cpu_s"] / task["seconds"],
    )


def environment(folder: Path, packages: tuple[str, ...]) -> str:
    """A python that has the packages."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {', '.join(packages)} into {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
        (folder / "ready").touch()
    return str(python)


def wait_for_quiet(load: float, at_most_s: float) -> None:
    until = time.monotonic() + at_most_s
    while os.getloadavg()[0] > load and time.monotonic() < until:
        time.sleep(5)


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate of sends over the rate of their plan, nothing sent."""

    rate: float
    ours: float
    ours_slip_p99_ms: float
    relative: float


def paces(options: argparse.Namespace) -> list[Pace]:
    found = []
    for rate in PACES:
        task = {"times": arrivals(rate, options.seconds), "seconds": options.seconds}
        ratio, slip = {}, {}
        for name in ("pacing absolute", "pacing relative"):
            rows = run_client(sys.executable, name, task, options.cores[1])["rows"]
            asked, took = rows[-1][1] - rows[0][1], rows[-1][2] - rows[0][2]
            ratio[name], slip[name] = asked / took, percentile([(r[2] - r[1]) * 1e3 for r in rows], 0.99)
        found.append(Pace(rate, ratio["pacing absolute"], slip["pacing absolute"], ratio["pacing relative"]))
        print(found[-1], file=sys.stderr)
    return found


def measure(options: argparse.Namespace) -> tuple[list[Row], list[Row]]:
    python = {OURS: sys.executable}
    peers = environment(options.environments / "peers", PEERS)
    for name in ("aiohttp", "locust readline", "locust iter_lines"):
        python[name] = peers
    server_core, client_core = options.cores
    schedule = Schedule()
    texts: list[Row] = []
    images: list[Row] = []
    with FixedServer(schedule, cpu=server_core) as server:

        def best(name: str, rate: float, body_bytes: int, seconds: float) -> Row:
            task = {
                "url": server.url,
                "times": arrivals(rate, seconds),
                "seconds": seconds,
                "events": schedule.events,
                "body_bytes": body_bytes,
            }
            tries = []
            for _ in range(options.repeats):
                wait_for_quiet(options.quiet_load, options.quiet_wait)
                saw = run_client(python[name], name, task, client_core)
                tries.append(judge(name, rate, task, saw, stamps_of(server.url)))
            row = min(tries, key=lambda r: (r.saturated, r.error_p99_ms))
            print(row, file=sys.stderr)
            return row

        tired: set[str] = set()
        for rate in options.rates:
            for name in python:
                if name not in tired:
                    texts.append(best(name, rate, TEXT_BYTES, options.seconds))
                    if texts[-1].saturated:
                        tired.add(name)
        images += [
            best(name, 8, body_bytes, max(options.seconds, 6.0))
            for name in (OURS, "aiohttp")
            for body_bytes in (TEXT_BYTES, IMAGE_BYTES)
        ]
        for wanted, package, run in (
            (options.with_aiperf, ("aiperf==0.13.0",), run_aiperf),
            (options.with_guidellm, ("guidellm==0.8.1", "torch==2.13.0"), run_guidellm),  # else a CUDA build
        ):
            if wanted:
                name = package[0].partition("==")[0]
                there = environment(options.environments / name, package)
                # Start-up is most of a short run's CPU: what ten requests cost is taken off.
                start = run(there, server.url, 50, 0.2, client_core, options.environments)
                for rate in options.rates:
                    stamps_of(server.url)
                    seen = run(there, server.url, rate, options.seconds, client_core, options.environments)
                    stamps = stamps_of(server.url)
                    seen["cpu_s"] -= start["cpu_s"]
                    seen["took_s"] -= start["took_s"]
                    texts.append(peer_row(name, rate, options.seconds, seen, stamps))
                    print(texts[-1], file=sys.stderr)
                    if texts[-1].saturated:
                        break
    return texts, images


def peer_row(name: str, rate: float, seconds: float, seen: dict[str, Any], stamps: dict[str, Stamps]) -> Row:
    """A whole tool's own TTFTs against the server's. delivered: its rate at the server / the rate asked."""
    typical = percentile((s.written_at[0] - s.received_at for s in stamps.values()), 0.5)
    received = sorted(s.received_at for s in stamps.values())
    span_s = received[-1] - received[0] if len(received) > 1 else seconds
    errors = [(value - typical) * 1e3 for value in seen["ttft_s"]] or [0.0]
    events = Schedule().events * max(1, len(received) - START_REQUESTS)
    p99 = quantile(errors, 0.99)
    return Row(
        client=name,
        rate=rate,
        asked=seen["asked"],
        done=len(received),
        delivered=min(1.0, (len(received) - 1) / max(span_s, 1e-9) / rate),
        slip_p99_ms=None,
        error_p50_ms=percentile(errors, 0.5),
        error_p99_ms=percentile(errors, 0.99),
        firm=p99 is not None and p99.firm,
        us_per_event=seen["cpu_s"] / max(1, events) * 1e6,
        core=seen["cpu_s"] / max(seconds, seen["took_s"]),
    )


def page(
    options: argparse.Namespace,
    texts: list[Row],
    images: list[Row],
    pace: list[Pace],
    load: tuple[float, ...],
) -> str:
    lines = [
        "# Load generators side by side",
        "",
        f"Command: `{' '.join(['python benchmarks/loadgen/compare.py', *sys.argv[1:]])}`",
        "",
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({_cpu()}), {platform.system()} {platform.release()}, Python",
        f"{platform.python_version()}, uvloop {importlib.metadata.version('uvloop')}; {', '.join(PEERS[:2])}. Server on one core,",
        f"each client alone on the other; {options.seconds:g} s, Poisson, best of {options.repeats}. Load average (1 min)",
        f"before the run {load[0]:.1f}, after it {os.getloadavg()[0]:.1f}; of that the run itself is up to 2.",
        "",
        "TTFT error: the client's TTFT less the server's own, same request. ~: fewer samples than a p99 needs (662). x ours:",
        "CPU per event against ours at the same rate; wake-ups batch, so compare within a rate only.",
        "",
        "| client | asked/s | delivered | slip p99 ms | TTFT error p50 ms | p99 ms | CPU us/event | x ours | of a core |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    ours = {row.rate: row.us_per_event for row in texts if row.client == OURS}
    for row in texts:
        slip = "-" if row.slip_p99_ms is None else f"{row.slip_p99_ms:.2f}"
        lines.append(
            f"| {row.client} | {row.rate:g} | {row.delivered:.1%} | {slip} | {row.error_p50_ms:.2f} | "
            f"{'' if row.firm else '~'}{row.error_p99_ms:.2f} | {row.us_per_event:.0f} | "
            f"{row.us_per_event / ours[row.rate]:.2f} | {row.core:.0%} |"
        )
    lines += [
        "",
        "Pacing alone, nothing sent: the rate of the sends over the rate of their plan. Absolute deadlines (ours), and sleeps",
        "for each gap on asyncio, as SGLang's bench_serving has them:",
        "",
        "| asked/s | ours | slip p99 ms | relative sleeps |",
        "|---|---|---|---|",
        *(f"| {p.rate:g} | {p.ours:.4f} | {p.ours_slip_p99_ms:.2f} | {p.relative:.4f} |" for p in pace),
        "",
        "A client that delivered under 99 % or slipped over 0.5 s is not asked for more.",
        "",
        f"Bodies of five 1.5 MB images ({IMAGE_BYTES / 1e6:.2f} MB) against text at 8/s. The error runs from the send to the",
        "first byte read there, and from the first event written there: the upload itself is the server's to wait for.",
        "",
        "| client | body | TTFT error p50 ms | of a core |",
        "|---|---|---|---|",
        *(
            f"| {row.client} | {body} | {row.error_p50_ms:.2f} | {row.core:.0%} |"
            for row, body in zip(images, ("text", "five images") * 2, strict=False)
        ),
        "",
    ]
    return "\n".join(lines)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="streams per second")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--cores", type=int, nargs=2, default=(0, 1), help="the server's and the client's")
    parser.add_argument("--quiet-load", type=float, default=1.0, help="wait for a load average below this")
    parser.add_argument(
        "--quiet-wait", type=float, default=0.0, help="seconds of waiting for it, at most, per run"
    )
    parser.add_argument("--environments", type=Path, default=Path("/tmp/toolkit-loadgen"))
    parser.add_argument("--with-aiperf", action="store_true", help="1.2 GB")
    parser.add_argument("--with-guidellm", action="store_true", help="1.5 GB")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    load = os.getloadavg()
    pace = paces(options)
    texts, images = measure(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page(options, texts, images, pace, load), encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
