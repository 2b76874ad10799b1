"""/metrics of the gateway and the engines during a run, on the run's own time axis: metrics.jsonl.

Only the names in NAMES are kept, and they are looked for in the page's bytes: parsing whole pages on the event loop
would delay the tokens that are being timed. One line per page:
`{"at_s", "source", "values": {"name{labels}": value}}`, or `{"at_s", "source", "error"}`; `at_s` is when the page
arrived, in seconds after the run's start, as in samples.jsonl.
"""

import asyncio
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.core.clock import Clock
from toolkit.core.http.errors import TransportError
from toolkit.core.names import (
    DECODE_QUEUED,
    ENGINE_UP,
    IN_FLIGHT,
    KV_LEASED,
    KV_POOL,
    KV_WAITING,
    PAIR_READY,
    SEATED,
    WAITING,
)

if TYPE_CHECKING:
    from toolkit.core.http.client import HttpClient

MAX_PAGE_BYTES = 8_000_000
PAGE_TIMEOUT_S = 5.0
HISTORY = "metrics"

QUEUES = (
    "sglang:num_queue_reqs",
    "sglang:num_prefill_bootstrap_queue_reqs",
    "sglang:num_decode_prealloc_queue_reqs",
)
RUNNING = (
    "sglang:num_running_reqs",
    "sglang:num_prefill_inflight_queue_reqs",
    "sglang:num_decode_transfer_queue_reqs",
)
ENGINE_REQUESTS = "sglang:http_requests_total"  # not exported by an engine of a Mooncake pair
ENGINE_STAGES = "sglang:per_stage_req_latency_seconds_count"
ROUTER_QUEUES = ("smg_admission_queue_depth", "smg_pd_prefill_admission_queued")
ROUTER_RUNNING = ("smg_worker_requests_active",)
ROUTER_RETRIES = "smg_worker_retries_total"
TOKEN_USAGE = "sglang:token_usage"  # noqa: S105 - a metric

NAMES: tuple[str, ...] = (
    *(m.name for m in (SEATED, WAITING, IN_FLIGHT, DECODE_QUEUED, ENGINE_UP, PAIR_READY)),
    *(m.name for m in (KV_POOL, KV_LEASED, KV_WAITING)),
    *QUEUES,
    *RUNNING,
    TOKEN_USAGE,
    ENGINE_REQUESTS,
    ENGINE_STAGES,
    *ROUTER_QUEUES,
    *ROUTER_RUNNING,
    ROUTER_RETRIES,
    "smg_worker_retries_exhausted_total",
    "smg_worker_cb_state",
    "sglang:num_retracted_reqs",
    "sglang:gen_throughput",
    "sglang:cache_hit_rate",
    "process_resident_memory_bytes",
)


@dataclass(frozen=True, slots=True)
class Source:
    """One page. name: gateway, prefill-0, ...; url: with /metrics."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Level:
    """One quantity of one source over a run, summed over its series at each page (token usage: their largest)."""

    source: str
    what: str  # waiting, in flight, token usage
    pages: int
    mean: float
    max: float


LEVELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("waiting", (WAITING.name, *QUEUES, *ROUTER_QUEUES)),
    ("in flight", (IN_FLIGHT.name, *RUNNING, *ROUTER_RUNNING)),
    ("token usage", (TOKEN_USAGE,)),
)


def sources(target: str, extra: Sequence[str], runs_dir: Path) -> tuple[Source, ...]:
    """The target's own page, the engines' of the service that answers there, and those that were named."""
    found = [Source("target", f"{target}/metrics")]
    found += [Source(name, f"{url}/metrics") for name, url in _engines(target, runs_dir)]
    found += [
        Source(url, url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics")
        for url in extra
    ]
    return tuple(found)


def pick(page: bytes, names: Sequence[str] = NAMES) -> dict[str, float]:
    """`name{labels}` -> value for each series of those names; values that are no number are left out."""
    values: dict[str, float] = {}
    page = b"\n" + page
    for name in names:
        prefix = b"\n" + name.encode()
        at = page.find(prefix)
        while at >= 0:
            end = page.find(b"\n", at + 1)
            line = page[at + 1 : end if end >= 0 else len(page)]
            series = _series(line, len(prefix) - 1)
            if series is not None:
                values[series[0]] = series[1]
            at = page.find(prefix, at + 1)
    return values


def named(values: Mapping[str, float], names: Collection[str]) -> list[float]:
    """The values of all series, whatever their labels, of these metrics."""
    return [value for series, value in values.items() if series.partition("{")[0] in names]


def levels(records: Iterable[Mapping[str, Any]]) -> tuple[Level, ...]:
    """What a report shows of metrics.jsonl: the target, engines by name, other URLs; LEVELS in each."""
    seen: dict[tuple[str, str], list[float]] = {}
    order: set[str] = set()
    for record in records:
        if "values" not in record:
            continue
        order.add(record["source"])
        for what, names in LEVELS:
            found = named(record["values"], names)
            if found:
                level = max(found) if what == "token usage" else sum(found)
                seen.setdefault((record["source"], what), []).append(level)
    return tuple(
        Level(source, what, len(values), sum(values) / len(values), max(values))
        for source in sorted(order, key=_place)
        for what, _ in LEVELS
        if (values := seen.get((source, what)))
    )


def _place(source: str) -> tuple[bool, bool, str]:
    return source != "target", "://" in source, source


class Scraper:
    """Asks every source each `every_s`; `write` gets a record per page. A source without a page is asked once."""

    def __init__(
        self,
        client: "HttpClient",
        asked: Sequence[Source],
        clock: Clock,
        started_at: Callable[[], float],
        write: Callable[[dict[str, Any]], None],
        every_s: float = 1.0,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """started_at: the run's zero on the clock; 0 while it has none. write: must not block."""
        self._client = client
        self._asked = asked
        self._clock = clock
        self._started_at = started_at
        self._write = write
        self._every_s = every_s
        self._headers = headers

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(*(self._follow(source) for source in self._asked))

    async def _follow(self, source: Source) -> None:
        due = self._clock.monotonic()
        while True:
            if self._started_at():
                record = await self._page(source)
                self._write(record)
                if record.get("status") == 404:
                    return
            due = max(due + self._every_s, self._clock.monotonic())
            await asyncio.sleep(due - self._clock.monotonic())

    async def _page(self, source: Source) -> dict[str, Any]:
        record: dict[str, Any] = {"at_s": 0.0, "source": source.name}
        try:
            async with asyncio.timeout(PAGE_TIMEOUT_S):
                response = await self._client.send("GET", source.url, self._headers)
                body = await response.read(MAX_PAGE_BYTES)
            if response.status == 200:
                record["values"] = pick(body)
            else:
                record |= {"error": f"HTTP status {response.status}", "status": response.status}
        except (TransportError, ValueError) as error:
            record["error"] = str(error)
        except TimeoutError:
            record["error"] = f"no page within {PAGE_TIMEOUT_S:g} s"
        record["at_s"] = round(self._clock.monotonic() - self._started_at(), 6)
        return record


def _series(line: bytes, name_bytes: int) -> tuple[str, float] | None:
    """One line of the page; None when it is another name that begins alike, or no number follows."""
    rest = line[name_bytes:]
    if rest.startswith(b"{"):
        close = rest.rfind(b"}")
        labels, rest = rest[: close + 1], rest[close + 1 :]
    else:
        labels = b""
    if not rest.startswith(b" "):
        return None
    try:
        value = float(rest.split()[0])
    except (ValueError, IndexError):
        return None
    if not math.isfinite(value):  # a gauge without a value yet; and no JSON
        return None
    return (line[:name_bytes] + labels).decode("utf-8", "replace"), value


def _engines(target: str, runs_dir: Path) -> list[tuple[str, str]]:
    try:
        service = json.loads((runs_dir / "latest" / "service.json").read_text(encoding="utf-8"))
        if str(service["gateway_url"]).rstrip("/") != target:
            return []
        return [(str(engine["name"]), str(engine["url"]).rstrip("/")) for engine in service["engines"]]
    except (OSError, ValueError, LookupError, TypeError):
        return []
