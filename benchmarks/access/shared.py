"""What a picture costs a gateway that finds it in the shared cache, beside decoding it: CPU time, one run, interleaved.

    .venv/bin/python benchmarks/access/shared.py

A real Valkey on a Unix socket; nothing is kept in memory, so that every request goes the whole way.
"""

import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from serving.access.fetch import Fetcher
from serving.access.grids import QwenGrid
from serving.access.prepare import Access
from serving.access.shared.configured import shared_tier
from serving.access.workers import DecodePool
from serving.config import AccessConfig
from tests.serving.access.pictures import photo, saved
from tests.serving.access.test_data_uri import data_uri
from tests.serving.access.valkey import Tally, Valkey
from toolkit.core.clock import SystemClock

GRID = QwenGrid("qwen2_vl", 28, 56 * 56, 1280 * 28 * 28)
SIZES = ((640, 427), (1920, 1080), (4000, 3000), (8000, 6000))
ROUNDS = 20


class Gateway:
    def __init__(self, **config: Any) -> None:
        limits = AccessConfig(cache_mb=0, shared_cache_timeout_ms=1000, **config)
        self.clock, self.tally = SystemClock(), Tally()
        pool = DecodePool(limits)
        self.shared = shared_tier(limits, GRID, self.clock, self.tally)
        self.access = Access(
            limits, GRID, Fetcher(limits, pool, self.clock), pool, self.clock, self.tally, self.shared
        )

    async def ask(self, uri: str) -> tuple[float, float]:
        """(CPU, wall) seconds of one request's image, the writing for others and decoding processes included."""
        cpu, wall = cpu_s(), time.perf_counter()
        await self.access.prepare([uri], self.clock.monotonic() + 60)
        wall = time.perf_counter() - wall
        while self.shared is not None and self.shared.queued_bytes:
            await asyncio.sleep(0.001)
        return cpu_s() - cpu, wall


def cpu_s() -> float:
    """CPU of this process and its children, the server's left out."""
    here = psutil.Process()
    children = [child for child in here.children(recursive=True) if child.name() != "valkey-server"]
    own = here.cpu_times()
    return (
        time.process_time()
        + own.children_user
        + own.children_system
        + sum(sum(child.cpu_times()[:2]) for child in children)
    )


async def measure(server: Valkey, uri: str, handover: str) -> dict[str, tuple[float, float]]:
    """Mean CPU (a process's is told in hundredths) and median wall time, seconds."""
    alone = Gateway(handover=handover)
    sharing = Gateway(handover=handover, shared_cache_url=server.url)
    taken: dict[str, list[tuple[float, float]]] = {"alone": [], "miss": [], "hit": []}
    for number in range(ROUNDS + 1):
        rounds = {"alone": await alone.ask(uri)}
        server.ask("FLUSHALL")
        rounds["miss"] = await sharing.ask(uri)
        rounds["hit"] = await sharing.ask(uri)
        if number:  # the first starts processes
            for name, spent in rounds.items():
                taken[name].append(spent)
    looked_up = sharing.tally.looked_up()
    for gateway in (alone, sharing):
        await gateway.access.close()
    assert looked_up == {"miss": ROUNDS + 1, "hit": ROUNDS + 1}, looked_up
    return {
        name: (statistics.fmean(cpu for cpu, _ in rounds), statistics.median(wall for _, wall in rounds))
        for name, rounds in taken.items()
    }


async def main() -> None:
    print(
        "| photo, handed over as | alone: CPU | found: CPU, of alone | found: wall | miss and write: CPU, of alone |"
    )
    print("|---|---|---|---|---|")
    with Valkey() as server:
        for width, height in SIZES:
            uri = data_uri(saved(photo(width, height), "JPEG", quality=92))
            for handover in ("png", "ppm"):
                found = await measure(server, uri, handover)
                alone, miss, hit = (found[name][0] * 1e3 for name in ("alone", "miss", "hit"))
                print(
                    f"| {width}x{height}, {handover} | {alone:.1f} ms | {hit:.1f} ms, {hit / alone:.3f}x"
                    f" | {found['hit'][1] * 1e3:.1f} ms | {miss:.1f} ms, {miss / alone:.2f}x |",
                    flush=True,
                )


if __name__ == "__main__":
    uvloop.run(main())
