"""What the access layer saves, on the real pair, side by side in one run: straight to SGLang, through the gateway, through
the front that people write first.

    python benchmarks/access/proof.py [--quick] [--no-bombs-on-bare] [--out FILE]

Starts `toolkit serve` on the CPU pair (one prefill, one decode, no image cache) and a naive front (proof_naive.py), sends
each payload each way in turn, another picture every time, and then the incident: text at 4/s alone, and beside a photo of
48 megapixels every two seconds. About 12 minutes on two cores, --quick 4. Exit code 1 where a bound is not kept.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop
from proof_fronts import BARE, GATEWAY, NAIVE, Front, Peak, Stand, stand
from proof_page import Run, page
from proof_payloads import BOMBS, LARGE, PHOTOS, READY, TEXT, Bodies
from proof_records import OWN, Incident, Measured, Row

RESULT = Path(__file__).parents[1] / "results" / "access-proof.md"
TEXTS_PER_S, UPLOAD_EVERY_S = 4.0, 2.0
QUIET_S, QUIET_CORES = 0.3, 0.15
STILL_S = 240.0
INCIDENTS = (
    *((name, beside) for name in (GATEWAY, BARE) for beside in ("", READY, LARGE)),
    *((NAIVE, beside) for beside in ("", LARGE)),
)
"""Beside READY, text waits for the engines' own work on an image and for nothing else."""


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    rounds: int
    alone_s: float
    beside_s: float
    bombs_on: tuple[str, ...]


FULL = Scale(3, 30.0, 40.0, (BARE, GATEWAY, NAIVE))
QUICK = Scale(1, 10.0, 14.0, (GATEWAY,))


class Proof:
    """Sends and accounts."""

    def __init__(self, on: Stand, bodies: Bodies) -> None:
        self._on = on
        self._bodies = bodies
        self.idle: dict[str, float] = {}
        self.sent_again = 0

    async def begin(self) -> None:
        """One photo each way, so that nothing is first; then what idle costs."""
        for front in self._on.fronts.values():
            for name in (TEXT, next(iter(PHOTOS)), LARGE if front.name == GATEWAY else TEXT):
                await front.send(self._bodies.make(name), batch=True)
        await asyncio.sleep(2)
        looks = []
        for _ in range(5):
            before, began = self._on.cpu(), time.monotonic()
            await asyncio.sleep(1)
            took = time.monotonic() - began
            looks.append({name: (value - before[name]) / took for name, value in self._on.cpu().items()})
        self.idle = {
            name: min(look[name] for look in looks) for name in looks[0]
        }  # what is left of the warm-up is not idle
        note("idle: " + ", ".join(f"{name} {cores:.3f} cores" for name, cores in self.idle.items()))

    async def one(self, front: Front, payload: str, at: int) -> Row:
        """Sent again, once, where the pair failed: Mooncake loses a transfer now and then on a busy machine."""
        row = await self._once(front, payload, at)
        if row.shot.status < 500 and row.shot.status:
            return row
        self.sent_again += 1
        await self._well(front)
        return await self._once(front, payload, at)

    async def _well(self, front: Front) -> None:
        """Until a text is answered."""
        until = time.monotonic() + STILL_S
        while (
            await front.send(self._bodies.make(TEXT), batch=True)
        ).status != 200 and time.monotonic() < until:
            note(f"{front.name}: a text is not answered; waiting")
            await asyncio.sleep(2)

    async def _once(self, front: Front, payload: str, at: int) -> Row:
        await self.quiet()
        body = self._bodies.make(payload, at)
        before, began = self._on.cpu(), time.monotonic()
        with Peak(front.pid) as peak:
            shot = await front.send(body, batch=True)
            await self.quiet()
        took = time.monotonic() - began
        used = {
            name: max(0.0, value - before[name] - self.idle[name] * took)
            for name, value in self._on.cpu().items()
        }
        row = Row(payload, front.name, shot, used["engines"], used.get(front.name), peak.growth_mb)
        told = "-" if shot.ttft_s is None else f"{shot.ttft_s:.2f} s"
        note(
            f"{payload:<32} {front.name:<12} {shot.status} {shot.code} TTFT {told}, engines {row.engines_s:.2f} CPU s"
        )
        return row

    async def quiet(self) -> None:
        """Until neither engines nor fronts do more than they do when idle."""
        for _ in range(int(STILL_S / QUIET_S)):
            before = self._on.cpu()
            await asyncio.sleep(QUIET_S)
            after = self._on.cpu()
            if sum(after.values()) - sum(before.values()) < QUIET_S * (sum(self.idle.values()) + QUIET_CORES):
                return
        note("the pair is still busy; going on")

    async def incident(self, front: Front, seconds: float, beside: str) -> Incident:
        """Open loop: what is due is sent, whatever became of the rest."""
        await self.quiet()
        await self._well(front)
        found = Incident(front.name, beside, seconds)
        texts = int(seconds * TEXTS_PER_S)
        due = [(number / TEXTS_PER_S, TEXT) for number in range(texts)]
        if beside:
            due += [
                (1.0 + number * UPLOAD_EVERY_S, beside)
                for number in range(int((seconds - 1) / UPLOAD_EVERY_S))
            ]
        before, own, began = self._on.cpu(), time.process_time(), time.monotonic() + 0.2
        tasks = []
        for number, (at, name) in enumerate(sorted(due)):
            await asyncio.sleep(max(0.0, began + at - time.monotonic()))
            tasks.append(asyncio.create_task(self._send(front, found, name, began + at, number)))
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        took = time.monotonic() - began
        found.cores = {name: (value - before[name]) / took for name, value in self._on.cpu().items()}
        found.cores[OWN] = (time.process_time() - own) / took
        await asyncio.gather(*tasks)
        note(
            f"{front.name:<12} beside {beside or 'nothing':<15} text p50 {found.percentile(0.5):.2f} s, "
            f"p95 {found.percentile(0.95):.2f} s {dict(found.texts)} uploads {dict(found.uploads)}"
        )
        return found

    async def _send(self, front: Front, found: Incident, name: str, due: float, number: int) -> None:
        late = time.monotonic() - due
        shot = await front.send(self._bodies.make(name, number), batch=False)
        ended = f"{shot.status} {shot.code}".strip()
        if name == TEXT:
            found.texts[ended] += 1
            found.ttfts_s.append(float("inf") if shot.ttft_s is None else shot.ttft_s + late)
        else:
            found.uploads[ended] += 1
            if shot.ttft_s is not None:
                found.upload_ttfts_s.append(shot.ttft_s + late)


async def measure(on: Stand, bodies: Bodies, scale: Scale) -> Measured:
    """The table first, in turns, the bombs after it, then the incidents."""
    proof = Proof(on, bodies)
    await proof.begin()
    fronts = list(on.fronts.values())
    rows = []
    for turn in range(scale.rounds):
        for payload in (TEXT, *PHOTOS):
            for place in range(len(fronts)):
                front = fronts[(place + turn) % len(fronts)]
                rows += [await proof.one(front, payload, turn)]
    for payload in BOMBS:
        rows += [await proof.one(on.fronts[name], payload, 0) for name in scale.bombs_on]
    incidents = []
    for name, beside in INCIDENTS:
        seconds = scale.beside_s if beside else scale.alone_s
        incidents.append(await proof.incident(on.fronts[name], seconds, beside))
    return Measured(rows, incidents, proof.idle, proof.sent_again)


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the page, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="each payload once, short incidents, bombs at the gateway only"
    )
    parser.add_argument(
        "--no-bombs-on-bare", action="store_true", help="spare the pair its minutes with the bombs"
    )
    parser.add_argument(
        "--engine",
        choices=("cpu", "simulated"),
        default="cpu",
        help="simulated: to try this script; its figures mean nothing",
    )
    parser.add_argument("--work", type=Path, help="keep run folder and logs there")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args(arguments)
    scale = QUICK if asked.quick else FULL
    if asked.no_bombs_on_bare:
        scale = Scale(
            scale.rounds, scale.alone_s, scale.beside_s, tuple(n for n in scale.bombs_on if n != BARE)
        )
    began, load = time.monotonic(), os.getloadavg()[0]
    bodies = Bodies("", scale.rounds)
    for payload in (*PHOTOS, *BOMBS, READY):
        for at in range(scale.rounds):
            bodies.make(payload, at)  # drawn before anything is measured
    note("payloads made; starting the pair")
    if asked.work is not None:
        asked.work.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="access-proof-") as aside,
        stand(asked.work or Path(aside), asked.engine) as on,
    ):
        bodies.model = on.model
        note("the pair is ready")
        found = uvloop.run(measure(on, bodies, scale))
    text, failures = page(found, Run(time.monotonic() - began, (load, os.getloadavg()[0]), asked.quick))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(text, encoding="utf-8")
    print(text)
    for failure in failures:
        note(f"NOT KEPT: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
