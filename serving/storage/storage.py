"""The gateway's way to the store: hand over and go on.

On the event loop a hand-over looks at two dicts and queues a job. A thread writes the spool, up to `concurrency` threads
upload from it; an entry leaves the spool only once the store has it whole.
"""

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from serving.config import MB
from serving.storage.backlog import Backlog
from serving.storage.entries import Entry, Kind, entry, image_name, result_name
from serving.storage.remote import Remote, StoreFault
from serving.storage.spool import Spool
from serving.storage.sweep import DAY_S, Sweeper
from serving.storage.target import target
from serving.storage.threads import Threads
from serving.storage_config import StorageConfig
from toolkit.core import names
from toolkit.core.clock import Clock
from toolkit.core.errors import EnvironmentFault
from toolkit.core.names import Metric

log = logging.getLogger("toolkit.storage")

ADOPT_EVERY_S = 300.0
"""How often slots of other gateways are looked through for what a dead one left."""


class Instruments(Protocol):
    """What Telemetry offers."""

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None: ...

    def gauge(self, metric: Metric, value: float, **labels: str) -> None: ...

    def observe(self, metric: Metric, value: float, **labels: str) -> None: ...


class Storage:
    """One per gateway; owns its spool slot and its threads. All methods are for the event loop."""

    def __init__(
        self,
        config: StorageConfig,
        remote: Remote,
        spool: Spool,
        clock: Clock,
        source: random.Random,
        instruments: Instruments,
    ) -> None:
        self._config = config
        self._remote = remote
        self._spool = spool
        self._clock = clock
        self._instruments = instruments
        self._backlog = Backlog(config.spool_mb * MB, config.concurrency, source)
        self._disk = ThreadPoolExecutor(1, "storage-spool")
        self._writes: set[asyncio.Future[int]] = set()
        self._moved = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._told: set[str] = set()
        self._fault = ""  # the kind of the store's last one; "" while it works
        self._answered = False
        self._closed = False
        self._sweeper = Sweeper(remote, config.retention_days, clock.wall, self._swept_there)
        self._threads: Threads | None = None  # from start to close

    @property
    def left(self) -> int:
        """Entries that are accepted and not yet in the store."""
        return self._backlog.entries

    @property
    def standing(self) -> str:
        """What is known of the store: "works", "unknown" until it has first answered, or "fails: " and the kind of fault."""
        return f"fails: {self._fault}" if self._fault else "works" if self._answered else "unknown"

    async def start(self) -> None:
        """Take over what earlier gateways left, look whether the store is there, and begin. Raises EnvironmentFault.

        A store that cannot be reached is a warning: answers do not depend on it, and the spool bridges an outage.
        """
        try:
            left = await asyncio.to_thread(self._spool.left)
            left += await asyncio.to_thread(self._spool.adopt)
        except OSError as error:
            raise EnvironmentFault(f"{self._spool.folder}: cannot be read ({error.strerror}).") from error
        self._threads = Threads()
        self._threads.run(self._remote.reach, self._reached)
        self._take_over(left)
        self._after("adopt", ADOPT_EVERY_S, self._adopt)
        if self._config.retention_days:
            self._sweeper.start()

    def image(self, digest: bytes, data: bytes, file_format: str) -> None:
        """Keep the file as it came. digest: its SHA-256."""
        if self._config.images:
            self._accept("image", image_name(digest, file_format), len(data), lambda: data)

    def result(self, request_id: str, arrived_at: float, size: int, make: Callable[[], bytes]) -> None:
        """Keep what `make` returns, called on a thread; size: about how many bytes that will be."""
        if self._config.results:
            self._accept("result", result_name(request_id, arrived_at), size, make)

    def show(self) -> None:
        """Bring the gauges up to date."""
        instruments, backlog = self._instruments, self._backlog
        instruments.gauge(names.STORAGE_UP, not self._fault, backend=self._config.url.partition(":")[0])
        instruments.gauge(names.STORAGE_SPOOL_BYTES, backlog.bytes)
        instruments.gauge(names.STORAGE_SPOOL_ENTRIES, backlog.entries)
        instruments.gauge(names.STORAGE_SPOOL_AGE, backlog.oldest_s(self._clock.wall()))

    async def close(self) -> None:
        """Upload what is left within drain_timeout_s, then let go; the rest stays in the spool. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._sweeper.stop()
        while self._writes:  # first: what is in memory only would be lost
            await asyncio.wait(set(self._writes))
        if self._threads is not None:
            await self._drain(self._clock.monotonic() + self._config.drain_timeout_s)
            self._threads = None
        for timer in self._timers.values():
            timer.cancel()
        self._disk.shutdown()
        self._spool.close()
        if self.left:
            log.warning(
                "%d entries (%.1f MB) are not in the store yet; they stay in %s for the next start",
                self.left,
                self._backlog.bytes / MB,
                self._spool.folder,
            )

    # --- into the spool

    def _accept(self, kind: Kind, name: str, size: int, make: Callable[[], bytes]) -> None:
        if self._closed:
            return
        answer = self._backlog.offer(name, size, self._clock.monotonic())
        if answer == "taken":
            writing = asyncio.get_running_loop().run_in_executor(self._disk, self._write, name, make)
            self._writes.add(writing)
            writing.add_done_callback(partial(self._written, kind, name))
        elif answer != "known":
            full = f"storage.spool_mb = {self._config.spool_mb} are taken"
            slow = f"the disk of {self._spool.folder} does not keep up"
            self._drop(kind, answer, full if answer == "spool_full" else slow)

    def _write(self, name: str, make: Callable[[], bytes]) -> int:
        data = make()
        self._spool.write(name, data)
        return len(data)

    def _written(self, kind: Kind, name: str, writing: asyncio.Future[int]) -> None:
        self._writes.discard(writing)
        error = writing.exception()
        whole = None if error is not None else entry(name, writing.result())
        if whole is None:
            self._backlog.unwritten(name)
            self._drop(kind, "disk_failed", str(error))
        else:
            self._backlog.written(whole, self._clock.wall())
            self._pump()

    def _drop(self, kind: Kind, reason: str, why: str) -> None:
        self._instruments.count(names.STORAGE_DROPPED, kind=kind, reason=reason)
        if reason not in self._told:  # once, until all is well again
            self._told.add(reason)
            log.error("storage: dropping what comes in (%s): %s", reason, why)

    def _adopt(self) -> None:
        if self._threads is not None:
            self._threads.run(self._spool.adopt, self._adopted)

    def _adopted(self, found: list[tuple[Entry, float]] | BaseException) -> None:
        if isinstance(found, BaseException):
            log.warning(
                "storage: the spools beside %s cannot be looked through: %s", self._spool.folder, found
            )
        else:
            self._take_over(found)
        self._after("adopt", ADOPT_EVERY_S, self._adopt)

    def _take_over(self, found: list[tuple[Entry, float]]) -> None:
        if found:
            log.info("storage: %d entries of earlier gateways are taken over", len(found))
        oldest = self._clock.wall() - (self._config.retention_days or math.inf) * DAY_S
        for one, since in found:
            if since < oldest:
                self._disk.submit(self._spool.remove, one.name)
                self._instruments.count(names.STORAGE_DROPPED, kind=one.kind, reason="expired")
            else:
                self._backlog.written(one, since)
        self._pump()

    # --- out of the spool

    def _pump(self) -> None:
        self._moved.set()
        if self._threads is None:
            return
        now = self._clock.monotonic()
        while (one := self._backlog.next(now)) is not None:
            self._threads.run(
                partial(self._upload, one, self._spool.path(one.name)), partial(self._uploaded, one, now)
            )
        wait_s = self._backlog.wait_s(now)
        if wait_s is not None:
            self._after("pump", wait_s, self._pump)

    def _upload(self, one: Entry, path: Path) -> Literal["uploaded", "exists"]:
        result = self._remote.upload(one, path, self._clock.wall())
        path.unlink(missing_ok=True)
        return result

    def _uploaded(self, one: Entry, began: float, outcome: str | BaseException) -> None:
        now = self._clock.monotonic()
        if isinstance(outcome, FileNotFoundError):
            self._backlog.done(one, now)
            self._drop(one.kind, "disk_failed", str(outcome))
        elif isinstance(outcome, BaseException):
            self._backlog.failed(one, now)
            self._instruments.count(names.STORAGE_UPLOADS, kind=one.kind, result="failed")
            self._lost(outcome)
        else:
            self._backlog.done(one, now)
            self._instruments.count(names.STORAGE_UPLOADS, kind=one.kind, result=outcome)
            self._instruments.observe(names.STORAGE_UPLOAD_SECONDS, now - began, kind=one.kind)
            if outcome == "uploaded":
                self._instruments.count(names.STORAGE_UPLOAD_BYTES, one.size, kind=one.kind)
            self._back()
        self._pump()

    def _after(self, name: str, wait_s: float, then: Callable[[], None]) -> None:
        if (timer := self._timers.get(name)) is not None:
            timer.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(wait_s, then)

    async def _drain(self, deadline: float) -> None:
        self._backlog.hurry()
        self._pump()
        while self._backlog.entries and (left_s := deadline - self._clock.monotonic()) > 0:
            wait_s = self._backlog.wait_s(self._clock.monotonic())
            if not self._backlog.uploading and wait_s is not None and wait_s > left_s:
                return  # the store is away: nothing will be tried in time
            self._moved.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._moved.wait()
            except TimeoutError:
                return

    # --- what is known of the store

    def _reached(self, outcome: object) -> None:
        if isinstance(outcome, BaseException):
            self._lost(outcome)
        else:
            self._answered = True

    def _lost(self, error: BaseException) -> None:
        kind = error.kind if isinstance(error, StoreFault) else type(error).__name__
        if kind != self._fault:
            log.warning("storage: the store fails; entries wait in the spool: %s", error)
        self._fault = kind

    def _back(self) -> None:
        if self._fault:
            log.info("storage: the store works again; %d entries to go", self.left)
        self._fault, self._answered = "", True
        if not self._backlog.entries:
            self._told.clear()

    def _swept_there(self, outcome: Counter[Kind] | StoreFault) -> None:
        if (threads := self._threads) is not None:
            threads.tell(partial(self._swept, outcome))

    def _swept(self, outcome: Counter[Kind] | StoreFault) -> None:
        if isinstance(outcome, StoreFault):
            log.warning("storage: the sweep for retention ended early: %s", outcome)
            return
        for kind, deleted in outcome.items():
            self._instruments.count(names.STORAGE_DELETED, deleted, kind=kind)
        log.info("storage: %d objects past their retention are deleted", outcome.total())


def open_storage(
    config: StorageConfig, beside: Path, clock: Clock, source: random.Random, instruments: Instruments
) -> Storage | None:
    """None where nothing is stored. beside: folder that a spool without a folder of its own is made in.

    Raises UsageFault, EnvironmentFault.
    """
    found = target(config)
    if found is None:
        return None
    store = found.open()
    root = Path(config.spool_dir).expanduser() if config.spool_dir else beside / "spool"
    spool = Spool.take(root, found.place)
    return Storage(config, Remote(store, config.retention_days), spool, clock, source, instruments)
