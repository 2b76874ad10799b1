"""In which file prepared pixels should travel to the engine: CPU and bytes of each way, and TTFT on a real pair.

    .venv/bin/python -m benchmarks.access.handover [--seconds 70] [--offline]

Offline: every way on the same pictures, interleaved, process CPU time. Then one `toolkit serve` per max_pixels (the tiny
model as it is; a copy of its folder that says 1,003,520) and a gateway per way in front of the same pair, without a cache;
fresh pictures, one request at a time, the ways in random order within each round. Below 8 minutes.
"""

import argparse
import base64
import http.client
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import psutil
from PIL import Image

from benchmarks.access.codecs import ROUNDS, WAYS, Figures, compare, memory, prepared
from benchmarks.routers.fronts import Pair, service
from serving.config import Handover
from serving.engines import tiny_model
from tests.serving.access import pictures

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "access-handover.md"
TINY, WIDE = 200_704, 1_003_520
KINDS = ("photo", "text page")


@dataclass
class Measured:
    """One way and kind of picture through its gateway. Seconds."""

    ttft: list[float] = field(default_factory=list)
    gateway_cpu: list[float] = field(default_factory=list)
    engines_cpu: list[float] = field(default_factory=list)


def main() -> int:
    """Measure, write the page, print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=70, help="of requests for each max_pixels")
    parser.add_argument(
        "--offline", action="store_true", help="without engines; the page is printed, not written"
    )
    parser.add_argument(
        "--simulated", action="store_true", help="a try of the script itself, on stand-in engines"
    )
    asked = parser.parse_args()
    if asked.simulated:
        print(live_text(TINY, live(TINY, asked.seconds, simulated=True), os.getloadavg()[1]))
        return 0
    text = HEAD + memory_text(memory())
    for most in (TINY, WIDE):
        for kind in (*KINDS, "zone plate"):
            image = prepared(kind, most)
            text += offline_text(kind, image, compare(image))
    if not asked.offline:
        for most, seconds in ((TINY, asked.seconds), (WIDE, 1.5 * asked.seconds)):
            text += live_text(most, live(most, seconds), os.getloadavg()[1])
        RESULT.write_text(text, encoding="utf-8")
    print(text)
    return 0


def live(max_pixels: int, seconds: float, simulated: bool = False) -> dict[tuple[str, str], Measured]:
    """(kind, way) to what was measured on a pair that is started and stopped here."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        model = _model(work, max_pixels)
        engine = "engine.kind=simulated" if simulated else f"model.path={model}"
        pair = stack.enter_context(service(_made(work / "pair"), [engine]))
        engines = [_listener(url) for url in pair.urls]
        gateways = {way: _gateway(stack, work, pair, model, way) for way in get_args(Handover)}
        cpus = {way: [_listener(url)] for way, url in gateways.items()}
        found = {(kind, way): Measured() for kind in KINDS for way in gateways}
        draw = _pictures(random.Random(max_pixels))
        for kind in KINDS:
            for url in gateways.values():
                _ask(url, draw[kind]())
        ends, order = time.monotonic() + seconds, random.Random(7)
        while time.monotonic() < ends or min(len(one.ttft) for one in found.values()) < 3:
            for kind, way in order.sample(list(found), len(found)):
                body = draw[kind]()
                before = _cpu(cpus[way]), _cpu(engines)
                row = found[kind, way]
                row.ttft.append(_ask(gateways[way], body))
                time.sleep(0.1)  # what ends after the last token
                row.gateway_cpu.append(_cpu(cpus[way]) - before[0])
                row.engines_cpu.append(_cpu(engines) - before[1])
        return found


def _model(work: Path, max_pixels: int) -> Path:
    """The tiny model's folder, or a copy whose processor takes that many pixels."""
    original = tiny_model.ensure(
        tiny_model.cache_folder(None, os.environ), str(ROOT / ".venv-engine/bin/python")
    )
    model = work / original.name
    shutil.copytree(original, model)
    for name in ("preprocessor_config.json", "processor_config.json"):
        file = model / name
        settings = json.loads(file.read_text(encoding="utf-8"))
        settings.get("image_processor", settings)["size"]["longest_edge"] = max_pixels
        file.write_text(json.dumps(settings), encoding="utf-8")
    return model


def _gateway(stack: ExitStack, work: Path, pair: Pair, model: Path, way: str) -> str:
    settings = [
        f'engine.attach_prefill=["{pair.prefill}?bootstrap_port={pair.bootstrap_port}"]',
        f'engine.attach_decode=["{pair.decode}"]',
        f"model.path={model}",
        f"access.handover={way}",
        "access.cache_mb=0",
    ]
    return stack.enter_context(service(_made(work / way), settings)).gateway


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _pictures(stream: random.Random):
    """By kind: a function that makes a request body with a picture never sent before, 1920x1440 as JPEG."""
    sources = {"photo": pictures.photo(4000, 3000), "text page": pictures.page(4000, 3000, 30)}

    def draw(source: Image.Image) -> bytes:
        left, top = stream.randrange(source.width - 1920), stream.randrange(source.height - 1440)
        file = pictures.saved(source.crop((left, top, left + 1920, top + 1440)), "JPEG", quality=90)
        url = "data:image/jpeg;base64," + base64.b64encode(file).decode()
        content = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": "What is this?"},
        ]
        document = {
            "model": "any",
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 2,
            "stream": True,
        }
        return json.dumps(document).encode()

    return {kind: lambda kind=kind: draw(sources[kind]) for kind in KINDS}


def _ask(url: str, body: bytes) -> float:
    """Seconds to the first token; the answer is read to its end."""
    document = json.loads(body) | {"model": _model_name(url)}
    body = json.dumps(document).encode()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        began = time.perf_counter()
        headers = {"Content-Type": "application/json", "x-slo-class": "batch"}  # slow is an answer too
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{url} answered {answer.status}: {answer.read()[:300]!r}")
        answer.readline()  # the gateway holds the stream until the first token is there
        first = time.perf_counter() - began
        answer.read()
        return first
    finally:
        connection.close()


_NAMES: dict[str, str] = {}


def _model_name(url: str) -> str:
    if url not in _NAMES:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
        connection.request("GET", "/v1/models")
        _NAMES[url] = json.loads(connection.getresponse().read())["data"][0]["id"]
        connection.close()
    return _NAMES[url]


def _listener(url: str) -> psutil.Process:
    port = urlsplit(url).port
    found = next(
        c.pid
        for c in psutil.net_connections("tcp")
        if c.laddr.port == port and c.status == "LISTEN" and c.pid
    )
    return psutil.Process(found)


def _cpu(roots: list[psutil.Process]) -> float:
    """CPU seconds of those processes and all below them."""
    return sum(sum(p.cpu_times()[:2]) for root in roots for p in _tree(root))


def _tree(root: psutil.Process) -> Iterator[psutil.Process]:
    yield root
    yield from root.children(recursive=True)


HEAD = f"""\
# In which file prepared pixels travel

`.venv/bin/python -m benchmarks.access.handover`. Ways in backticks are values of `access.handover`; the others were considered.
Every one but JPEG came back to the pixel. CPU: milliseconds of process time, the least of {ROUNDS} interleaved rounds. here:
encoding and base64 in the gateway; leg: JSON, base64 and decoding, on prefill and again on decode; all: here and both legs.
at 1 Gbit/s: here, the wire for both legs, one leg: what stands between the pixels here and the pixels on prefill.

"""


def memory_text(grown: dict[str, float]) -> str:
    """The peak while encoding."""
    shown = ", ".join(f"{way} {bytes_:.1f}" for way, bytes_ in grown.items())
    return f"Memory at the peak of encoding, bytes a pixel, the picture itself not counted: {shown}.\n\n## Without an engine\n"


def offline_text(kind: str, image: Image.Image, figures: dict[str, Figures]) -> str:
    """One table."""
    lines = [
        f"\n### {kind}, {image.width}x{image.height}\n",
        "| file | kB | here | leg | all | all, of png | at 1 Gbit/s |",
        "|---|---|---|---|---|---|---|",
    ]
    base = figures["`png` (level 1)"].cpu_s
    for way in WAYS:
        one = figures[way]
        lines.append(
            f"| {way}{'' if one.exact else ', not exact'} | {one.size_bytes / 1e3:,.0f} | {1e3 * (one.encode_s + one.base64_s):.1f}"
            f" | {1e3 * one.leg_s:.1f} | {1e3 * one.cpu_s:.1f} | {one.cpu_s / base:.2f}x | {1e3 * one.path_s:.1f} |"
        )
    return "\n".join([*lines, ""])


def live_text(max_pixels: int, found: dict[tuple[str, str], Measured], load: float) -> str:
    """TTFT and CPU through the gateway, and each round's TTFT against png's of that round."""
    lines = [
        f"\n## On the real pair, max_pixels {max_pixels:,}\n",
        "1920x1440 JPEG to the first token through the gateway; two cores for everything. The vision tower's attention on CPUs",
        "grows with the square of the pixels and is most of TTFT at a megapixel; on a GPU the handover's share is larger.",
        f"Load average of five minutes at the end: {load:.1f}. CPU: mean of user and system time from the request to 0.1 s after its",
        "end, in clock ticks of 10 ms.",
        "",
        "| picture | handover | requests | TTFT p50 ms | quartiles | of png, paired p50 | gateway CPU ms | engines' CPU ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (kind, way), one in found.items():
        low, middle, high = (1e3 * cut for cut in statistics.quantiles(one.ttft, n=4))
        paired = statistics.median(a / b for a, b in zip(one.ttft, found[kind, "png"].ttft, strict=True))
        lines.append(
            f"| {kind} | {way} | {len(one.ttft)} | {middle:.0f} | {low:.0f} to {high:.0f} | {paired:.2f}x"
            f" | {1e3 * statistics.mean(one.gateway_cpu):.0f} | {1e3 * statistics.mean(one.engines_cpu):.0f} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
