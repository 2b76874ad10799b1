"""64 photos of 48 MP at once, against a gateway with stand-in engines: memory, refusals, and who else is served.

    python benchmarks/access/flood.py [--uploads 64] [--memory-mb 768]

52 baseline JPEGs, 4 each of progressive JPEG, PNG and WebP, every one with bytes of its own, all sent in the
same moment as data URIs. Beside them one small image and one text request every 100 ms. Memory is the sum of the
proportional set sizes (PSS) of the gateway and its decoding processes, read every 50 ms; the growth is over the
moment before the flood. Writes benchmarks/results/access-flood.md.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import psutil
from PIL import Image

ROOT = Path(__file__).parents[2]
PHOTO = ROOT / "workloads/assets/photos/china.jpg"
RESULT = ROOT / "benchmarks/results/access-flood.md"
SIZE = (8000, 6000)


@dataclass
class Outcome:
    """What became of one kind of request: (status, code) counts, seconds of those that were answered 200."""

    said: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Requests that have their one answer."""
        return sum(self.said.values())

    def row(self, name: str) -> str:
        said = ", ".join(f"{count} x {what}" for what, count in sorted(self.said.items()))
        if not self.seconds:
            return f"| {name} | {said} | | |"
        ordered = sorted(self.seconds)
        p95 = ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]
        return f"| {name} | {said} | {statistics.median(ordered):.2f} | {p95:.2f} |"


@dataclass
class Flood:
    """What was seen. growth_mb: peak over the moment before; lag_s: the event loop's, upper edges of its histogram."""

    growth_mb: float
    before_mb: float
    lag_p99_s: float
    lag_max_s: float
    took_s: float
    outcomes: dict[str, Outcome]


def photos(size: tuple[int, int] = SIZE) -> dict[str, bytes]:
    """One file of each kind; PNG and WebP of a smoother picture, so that at 48 MP their files stay under 32 MB."""
    with Image.open(PHOTO) as image:
        large = image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    grain = Image.effect_noise((size[0] // 4, size[1] // 4), 60).resize(size).convert("RGB")
    rough = Image.blend(large, grain, 0.25)
    return {
        "JPEG": _saved(rough, "JPEG", quality=94),
        "progressive JPEG": _saved(rough, "JPEG", quality=90, progressive=True),
        "PNG": _saved(large.quantize(64).convert("RGB"), "PNG", compress_level=1),
        "WebP": _saved(large, "WEBP", quality=80, method=0),
    }


def unique(kind: str, data: bytes, number: int) -> bytes:
    """The same picture in other bytes."""
    mark = number.to_bytes(4, "big")
    if "JPEG" in kind:
        return data[:2] + b"\xff\xfe\x00\x06" + mark + data[2:]
    if kind == "PNG":
        import zlib

        chunk = b"tEXt" + b"n\0" + mark.hex().encode()
        end = data.rindex(b"IEND") - 4
        packed = (len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big")
        return data[:end] + packed + data[end:]
    body = data[8:] + b"note" + (4).to_bytes(4, "little") + mark
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def body_of(model: str, data: bytes | None) -> bytes:
    """A chat request of two tokens, with an image or without."""
    content: object = "hi"
    if data is not None:
        url = "data:image/*;base64," + base64.b64encode(data).decode()
        content = [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": url}}]
    request = {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": content}]}
    return json.dumps(request).encode()


async def ask(port: int, body: bytes, outcome: Outcome, slo: str = "standard") -> None:
    """One request on a connection of its own; `slo`: its SLO class."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\nx-slo-class: {slo}\r\n\r\n"
    )
    try:
        writer.write(head.encode() + body)
        answer = await reader.read()
    except ConnectionError:
        outcome.said["connection lost"] += 1
        return
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    status = int(answer[9:12])
    if status == 200:
        outcome.said["200"] += 1
        outcome.seconds.append(time.monotonic() - began)
        return
    error = json.loads(answer[answer.index(b"\r\n\r\n") + 4 :])["error"]
    outcome.said[f"{status} {error['code']}"] += 1


async def flood(
    port: int, model: str, gateway: psutil.Process, uploads: int, size: tuple[int, int], slo: str
) -> Flood:
    """Sends everything; returns when the last upload has its answer."""
    kinds = photos(size)
    others = max(1, uploads // 16)
    outcomes = {name: Outcome() for name in (*kinds, "small image", "text")}
    order = [kind for kind in kinds if kind != "JPEG" for _ in range(others)]
    order += ["JPEG"] * (uploads - len(order))
    bodies = [(kind, body_of(model, unique(kind, kinds[kind], number))) for number, kind in enumerate(order)]
    with Image.open(PHOTO) as image:
        small = _saved(image.convert("RGB"), "JPEG")
    text = body_of(model, None)
    for number in range(3):
        await ask(port, body_of(model, unique("JPEG", small, 900_000 + number)), Outcome())
    lag_before = await lag(port)
    before = pss_mb(gateway)
    peak = before
    running = [asyncio.create_task(ask(port, body, outcomes[kind], slo)) for kind, body in bodies]
    beside: list[asyncio.Task[None]] = []
    began, due = time.monotonic(), 0.0
    while not all(task.done() for task in running):
        peak = max(peak, await asyncio.to_thread(pss_mb, gateway))
        if time.monotonic() - began >= due:
            due += 0.1
            number = len(beside)
            beside.append(
                asyncio.create_task(
                    ask(port, body_of(model, unique("JPEG", small, number)), outcomes["small image"])
                )
            )
            beside.append(asyncio.create_task(ask(port, text, outcomes["text"])))
        await asyncio.sleep(0.05)
    took_s = time.monotonic() - began
    await asyncio.gather(*running, *beside)
    edges = await lag(port)
    seen = {edge: edges[edge] - lag_before.get(edge, 0) for edge in edges}
    return Flood(peak - before, before, _edge(seen, 0.99), _edge(seen, 1.0), took_s, outcomes)


async def lag(port: int) -> dict[float, float]:
    """The event loop's lag histogram: cumulative counts by upper edge, seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n")
    page = (await reader.read()).decode()
    writer.close()
    prefix = 'toolkit_event_loop_lag_seconds_bucket{le="'
    lines = [line for line in page.splitlines() if line.startswith(prefix)]
    return {float(line[len(prefix) :].split('"')[0]): float(line.split()[-1]) for line in lines}


def pss_mb(gateway: psutil.Process) -> float:
    """The gateway and its decoding processes; memory that several share is counted once."""
    total = 0
    for process in [gateway, *gateway.children(recursive=True)]:
        with contextlib.suppress(psutil.Error, OSError, IndexError):
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
            total += int(rollup.split("\nPss:")[1].split()[0])
    return total * 1024 / 1e6


def _edge(cumulative: dict[float, float], share: float) -> float:
    most = max(cumulative.values())
    return next(edge for edge, count in sorted(cumulative.items()) if count >= share * most)


def _saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    out = BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


@contextlib.asynccontextmanager
async def service(folder: Path, *settings: str) -> AsyncIterator[tuple[int, str, psutil.Process]]:
    """`toolkit serve` on stand-in engines: port, model, the gateway's process."""
    command = [str(Path(sys.executable).with_name("toolkit")), "serve", "--json", "--port", "0"]
    for setting in ("engine.kind=simulated", f"runs_dir={folder}", *settings):
        command += ["--set", setting]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=folder)
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            if json.loads(line)["event"] == "service_ready":
                break
        run = json.loads((folder / "latest/service.json").read_text(encoding="utf-8"))
        port = int(run["gateway_url"].rsplit(":", 1)[1].split("/")[0])
        gateway = next(
            one
            for one in psutil.Process(process.pid).children(recursive=True)
            if one.cmdline()[1:3] == ["-m", "serving.gateway"]
        )
        yield port, run["model_name"], gateway
    finally:
        process.terminate()
        await process.wait()


async def measure(
    uploads: int, memory_mb: int, *settings: str, size: tuple[int, int] = SIZE, slo: str = "batch"
) -> Flood:
    """On a service of its own."""
    with tempfile.TemporaryDirectory() as folder:
        async with service(Path(folder), f"access.memory_mb={memory_mb}", *settings) as (
            port,
            model,
            gateway,
        ):
            return await flood(port, model, gateway, uploads, size, slo)


def page(patient: Flood, hurried: Flood, uploads: int, memory_mb: int) -> str:
    """Both runs as one page."""
    return f"""# {uploads} photos of 48 MP at once

`python benchmarks/access/flood.py --uploads {uploads} --memory-mb {memory_mb}`, {psutil.cpu_count()} cores shared by the
sender, the gateway and the stand-in engines. Memory: the gateway and its decoding processes, growth over the moment
before; the budget is {memory_mb} MB.

## Uploads that can wait (`x-slo-class: batch`)

{_part(patient)}
## Uploads with the default budget of 3 s

{_part(hurried)}
p50 and p95: whole answers of two tokens, of those answered 200. A 429 says when to come back; every request has one answer.
"""


def _part(found: Flood) -> str:
    rows = "\n".join(outcome.row(name) for name, outcome in found.outcomes.items())
    return f"""Memory: {found.before_mb:.0f} MB before, **{found.growth_mb:+.0f} MB at the peak**. All answered after
{found.took_s:.0f} s. Event-loop lag: p99 at most {found.lag_p99_s * 1000:.0f} ms, greatest at most {found.lag_max_s * 1000:.0f} ms.

| sent | answers | p50 s | p95 s |
|---|---|---|---|
{rows}
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--uploads", type=int, default=64)
    parser.add_argument("--memory-mb", type=int, default=768)
    parser.add_argument("--set", action="append", default=[], help="a further setting of the service")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    found = [
        asyncio.run(measure(asked.uploads, asked.memory_mb, *asked.set, slo=slo))
        for slo in ("batch", "standard")
    ]
    text = page(*found, asked.uploads, asked.memory_mb)
    print(text)
    asked.out.write_text(text, encoding="utf-8")
    return 0 if max(one.growth_mb for one in found) <= asked.memory_mb else 1


if __name__ == "__main__":
    sys.exit(main())
