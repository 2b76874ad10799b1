"""Multi-image requests fill the batch; text comes beside them. First in, first out against priority, before the same real pair.

    .venv/bin/python -m benchmarks.schedule.filled [--engine simulated] [--window 60]

Two gateways before one pair, alike but for the order: both let eight requests in at once, and promise so much time that none is
refused. Long requests (four images) come half as fast again as the pair can answer them, found out first; text once a second.
The gateways take turns, twice each. Eight minutes; writes benchmarks/results/schedule-filled.md (with --engine simulated only
below --work). Exit code 1 when a bound is not kept. The same in virtual time: priority.py.
"""

import argparse
import asyncio
import itertools
import os
import platform
import random
import statistics
import sys
import textwrap
import time
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import orjson
import pybase64
from PIL import Image

from benchmarks.schedule.services import asked, attached, served
from benchmarks.schedule.storm_load import Told, streamed
from tests.serving.schedule.virtual import p95
from toolkit.core.errors import ToolkitError
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

PAGE = Path(__file__).resolve().parents[1] / "results" / "schedule-filled.md"
FIFO, PRIORITY = "first in, first out", "priority"
ORDER = (FIFO, PRIORITY, PRIORITY, FIFO)
SLOTS, ANSWER_S = 8, 600.0
SAME = (
    "schedule.adaptive=false",
    f"schedule.max_in_flight={SLOTS}",
    "schedule.max_waiting=100000",
    f"standard.ttft_budget_s={ANSWER_S:g}",
)
ALL_ALIKE = ("schedule.short_tokens=1000000000", "standard.short_wait_s=0.000001")
"""All are short, and due at once: first in, first out by the same code."""
OVER, TEXT_RATE = 1.5, 1.0
IMAGES, SIDE, LONG_TOKENS, TEXT_TOKENS = 4, 448, 64, 4
BETTER, LOST = 2.0, 10.0


@dataclass(frozen=True)
class Shot:
    """One request. Seconds from the window's begin; first_s, ended_s None: it was not answered."""

    long: bool
    due_s: float
    first_s: float | None
    ended_s: float | None

    @property
    def ttft_s(self) -> float:
        return float("inf") if self.first_s is None else self.first_s - self.due_s


@dataclass(frozen=True)
class Window:
    """One gateway's turn."""

    name: str
    shots: list[Shot]
    window_s: float

    @property
    def text_p95_s(self) -> float:
        return p95([one.ttft_s for one in self.shots if not one.long])

    @property
    def long_per_s(self) -> float:
        """Finished within the window."""
        done = [one for one in self.shots if one.long and one.ended_s and one.ended_s <= self.window_s]
        return len(done) / self.window_s

    @property
    def failed(self) -> int:
        return sum(one.ended_s is None for one in self.shots)


class Asker:
    """Makes bodies, each image another, and asks one gateway."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._numbers = itertools.count()
        self._source = random.Random(3)
        self.client = HttpClient()

    def body(self, long: bool) -> bytes:
        number = next(self._numbers)
        content: list[dict[str, object]] = [{"type": "text", "text": f"Request {number}: what do you see?"}]
        content += [
            {"type": "image_url", "image_url": {"url": self._picture()}} for _ in range(IMAGES if long else 0)
        ]
        return orjson.dumps(
            {
                "model": self._model,
                "messages": [{"role": "user", "content": content}],
                "max_tokens": LONG_TOKENS if long else TEXT_TOKENS,
                "ignore_eos": True,
                "stream": True,
            }
        )

    async def ask(self, url: str, body: bytes, long: bool, due_s: float, began: float) -> Shot:
        try:
            first, _ = await streamed(self.client, url, body, ANSWER_S)
        except (Told, ToolkitError, TransportError, TimeoutError) as error:
            print(f"not answered: {error}", file=sys.stderr)
            return Shot(long, due_s, None, None)
        return Shot(long, due_s, first - began, time.monotonic() - began)

    def _picture(self) -> str:
        shade = tuple(self._source.randrange(256) for _ in range(3))
        image = Image.new("RGB", (SIDE, SIDE), shade)
        image.putpixel((0, 0), (next(self._numbers) % 256, 0, 0))
        file = BytesIO()
        image.save(file, "PNG")
        return "data:image/png;base64," + pybase64.b64encode_as_string(file.getvalue())


async def capacity(asker: Asker, url: str, seconds: float) -> float:
    """Long requests per second with SLOTS of them in it all the time."""
    began, done = time.monotonic(), 0

    async def on_and_on() -> None:
        nonlocal done
        while time.monotonic() < began + seconds:
            shot = await asker.ask(url, asker.body(long=True), True, 0.0, began)
            done += shot.ended_s is not None

    await asyncio.gather(*(on_and_on() for _ in range(SLOTS)))
    return done / (time.monotonic() - began)


async def window(asker: Asker, url: str, long_rate: float, window_s: float, seed: int) -> list[Shot]:
    """Poisson arrivals of both kinds; returns when all are answered."""
    source, asks = random.Random(seed), []
    due: list[tuple[float, bool]] = []
    for rate, long in ((long_rate, True), (TEXT_RATE, False)):
        at = source.expovariate(rate)
        while at < window_s:
            due.append((at, long))
            at += source.expovariate(rate)
    bodies = [(at, long, asker.body(long)) for at, long in sorted(due)]
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for at, long, body in bodies:
            await asyncio.sleep(began + at - time.monotonic())
            asks.append(group.create_task(asker.ask(url, body, long, at, began)))
    return [ask.result() for ask in asks]


async def measured(urls: dict[str, str], model: str, window_s: float) -> tuple[float, list[Window]]:
    asker = Asker(model)
    for url in urls.values():
        await capacity(asker, url, 5.0)  # what is loaded lazily is loaded
    can = await capacity(asker, urls[FIFO], window_s / 4)
    print(f"{can:.2f} long requests/s with {SLOTS} at once", file=sys.stderr)
    windows = []
    for number, name in enumerate(ORDER):
        shots = await window(asker, urls[name], OVER * can, window_s, seed=1 + number // 2)
        windows.append(Window(name, shots, window_s))
        print(f"{name}: text P95 {windows[-1].text_p95_s:.2f} s", file=sys.stderr)
    await asker.client.close()
    return can, windows


def of(windows: list[Window], name: str) -> tuple[float, float, int]:
    """Means over its windows: text P95, long ones per second; failures in all."""
    mine = [one for one in windows if one.name == name]
    return (
        statistics.mean(one.text_p95_s for one in mine),
        statistics.mean(one.long_per_s for one in mine),
        sum(one.failed for one in mine),
    )


def page(
    can: float, windows: list[Window], simulated: bool, load: tuple[float, float]
) -> tuple[str, list[str]]:
    """The page, and the bounds that are not kept."""
    fifo, priority = of(windows, FIFO), of(windows, PRIORITY)
    better, lost = fifo[0] / priority[0], 100 * (1 - priority[1] / fifo[1])
    failed = fifo[2] + priority[2]
    bounds = [
        (f"text's TTFT P95 >= {BETTER:g}x better than {FIFO}", f"{better:.1f}x", better >= BETTER),
        (f"long requests finished: at most {LOST:g} % lost", f"{lost:.0f} % lost", lost <= LOST),
        ("nobody fails", f"{failed} failed", failed == 0),
    ]
    engines = (
        "pair of stand-ins (SIMULATED: no figure of any hardware)"
        if simulated
        else "pair of SGLang 0.5.23 on CPUs (tiny vision-language model)"
    )
    told = (
        f"`benchmarks/schedule/filled.py`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores "
        f"({platform.machine()}), load average {load[0]:.1f} before and {load[1]:.1f} after. Two gateways before one {engines}, "
        f"{SLOTS} requests in it at once. Long requests: {IMAGES} images of {SIDE}x{SIDE}, {LONG_TOKENS} tokens; the pair does "
        f"{can:.2f} of them a second, {OVER * can:.2f} come. Text: {TEXT_RATE:g} a second, {TEXT_TOKENS} tokens. Windows of "
        f"{windows[0].window_s:g} s, the same arrivals for both in each round. Read ratios."
    )
    lines = [
        "# Multi-image requests fill the batch: who waits",
        "",
        *textwrap.wrap(told, 118),
        "",
        "| order | text TTFT P95, s | long finished /s | not answered |",
        "|---|---|---|---|",
        *(f"| {one.name} | {one.text_p95_s:.2f} | {one.long_per_s:.2f} | {one.failed} |" for one in windows),
        "",
        "## Bounds",
        "",
        "| bound | measured | |",
        "|---|---|---|",
        *(f"| {what} | {seen} | {'kept' if well else '**not kept**'} |" for what, seen, well in bounds),
        "",
    ]
    return "\n".join(lines), [what for what, _, well in bounds if not well]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--window", type=float, default=60.0, help="seconds of each turn")
    options, work = asked(parser, "filled")
    before = os.getloadavg()[0]
    kind = [f"engine.kind={options.engine}", "engine.ready_timeout_s=900"]
    with (
        served(work, [*kind, *SAME]) as priority,
        attached(work, priority.service, [*SAME, *ALL_ALIKE]) as fifo,
    ):
        urls = {FIFO: fifo.url, PRIORITY: priority.url}
        can, windows = asyncio.run(measured(urls, priority.service.model_name, options.window))
    simulated = options.engine == "simulated"
    text, broken = page(can, windows, simulated, (before, os.getloadavg()[0]))
    (work / PAGE.name).write_text(text, encoding="utf-8")
    if not simulated:
        PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
