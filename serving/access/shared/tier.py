"""The second tier as prepare sees it: a look-up that takes no longer than it may, a write that nobody waits for.

    closed breaker   a look-up waits for the store up to the limit; then its caller goes on without it
    open breaker     nothing is asked; after a hold that grows, one look-up or write is the probe

A call that nobody waits for any more is left to end by itself (store.CALL_S): cancelling it would cost the
connection, and a server that takes longer to connect to than one look-up may wait would never be reached.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from serving.access.breaker import Breaker, BreakerRule, Pass, State
from serving.access.grid import ImageGrid
from serving.access.meter import Meter
from serving.access.picture import Prepared
from serving.access.shared.entry import ForeignValue, pack, unpack
from serving.access.shared.store import CONNECTIONS, ByteStore, StoreFault
from serving.access.shared.writer import Writer
from serving.config import AccessConfig
from toolkit.core import names
from toolkit.core.clock import Clock

Found = tuple[str, Prepared | None]
"""What a look-up came to, as the metric tells it, and the image of a hit."""

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("toolkit.gateway")

TIER = "shared"
RULE = BreakerRule(failures=3, hold_s=1.0, most_hold_s=30.0)
QUEUED_ENTRIES = 2
"""What may wait to be written, as so many images of the largest size; most are far smaller."""
FLUSH_S = 0.5
"""How long close() waits for what is still to be written."""
INLINE_BYTES = 65_536
"""Up to here a value is sealed or checked at once (0.1 ms); above on a thread of its own, beside the decodes."""


def name_of(key: bytes) -> bytes:
    """Where the store keeps an image: one prefix, for access rules of its own."""
    return b"mm-serving-toolkit:image:" + key.hex().encode()


class SharedTier:
    """Prepared images in a store that other gateways use too. Owns the store. Used from one event loop."""

    def __init__(
        self,
        config: AccessConfig,
        grid: ImageGrid,
        store: ByteStore,
        clock: Clock,
        meter: Meter,
        secret: bytes = b"",
        where: str = "the store",
    ) -> None:
        self._limit_s = config.shared_cache_timeout_ms / 1000
        self._ttl_s = config.shared_cache_ttl_s
        self._most_bytes = config.shared_cache_max_entry_bytes
        self._grid = grid
        self._store = store
        self._clock = clock
        self._meter = meter
        self._secret = secret
        self._where = where
        self._breaker = Breaker(RULE)
        self._told_down = False
        self._fault: str | None = None  # of the last call, "" where it was answered; None: none has ended yet
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._calls: set[asyncio.Task[Found]] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shared-cache")
        self._writer = Writer(self._write, self._written, QUEUED_ENTRIES * self._most_bytes)

    @property
    def state(self) -> State:
        return self._breaker.state(self._clock.monotonic())

    @property
    def up(self) -> bool:
        """Whether the store is asked by whoever comes, and not left alone for its failures."""
        return self.state is State.CLOSED

    @property
    def standing(self) -> str:
        """What is known of the store: "works", "unknown" until it has first answered, or "fails: " and the kind of fault."""
        if self._fault is None:
            return "unknown"
        return f"fails: {self._fault.partition(':')[0]}" if self._fault else "works"

    async def look(self) -> None:
        """Asks the store for nothing, and does not wait for the answer: so its standing is known before anybody needs it."""
        held = self._breaker.enter(self._clock.monotonic())
        if held is not None:
            await self._slots.acquire()
            self._begin(b"", 0, held)

    @property
    def queued_bytes(self) -> int:
        """Memory held for what is still to be written."""
        return self._writer.queued_bytes

    async def get(self, key: bytes, size_bytes: int) -> Prepared | None:
        """The image stored under the key for a source of `size_bytes`; None where there is none to be had in time.

        Raises nothing but CancelledError.
        """
        result, prepared = await self._find(key, size_bytes)
        self._meter.count(names.IMAGE_CACHE, tier=TIER, result=result)
        return prepared

    def put(self, key: bytes, prepared: Prepared) -> None:
        """Will be written, if the store and the queue allow. Never waits, never raises."""
        if self._file_bytes(prepared) > self._most_bytes:
            self._written("too_large")
        elif self.state is State.OPEN:
            self._written("dropped")
        else:
            self._writer.offer(key, prepared)

    async def close(self) -> None:
        """Writes what can be written within FLUSH_S, then gives up the rest. Idempotent."""
        await self._writer.close(FLUSH_S)
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._store.close()
        except (TimeoutError, StoreFault, OSError):
            log.debug("shared image cache: not closed in order")
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _find(self, key: bytes, size_bytes: int) -> Found:
        held = self._breaker.enter(self._clock.monotonic())
        if held is None:
            return "skipped", None
        loop = asyncio.get_running_loop()
        began, seen = loop.time(), self._clock.monotonic()  # uvloop's own clock counts milliseconds
        try:
            async with asyncio.timeout(self._limit_s / 2):
                await self._slots.acquire()
            call = self._begin(key, size_bytes, held)
            await asyncio.wait([call], timeout=began + self._limit_s - loop.time())
        except TimeoutError:  # every place is taken: that says nothing about the store
            self._breaker.left(held)
            return "skipped", None
        except asyncio.CancelledError:
            self._breaker.left(held)
            raise
        self._meter.observe(names.SHARED_CACHE_LOOKUP, self._clock.monotonic() - seen)
        if call.done():
            return call.result()
        self._failed(held, f"no answer within {self._limit_s * 1000:g} ms")
        return "error", None

    def _begin(self, key: bytes, size_bytes: int, held: Pass) -> asyncio.Task[Found]:
        """A slot is held, and freed at its end."""
        call = asyncio.get_running_loop().create_task(self._ask(key, size_bytes, held))
        self._calls.add(call)
        call.add_done_callback(self._ended)
        return call

    async def _ask(self, key: bytes, size_bytes: int, held: Pass) -> Found:
        """Bounded by the store; whoever asked may have gone on."""
        try:
            value = await self._store.get(name_of(key), self._most_bytes)
        except StoreFault as fault:
            self._failed(held, str(fault))
            return "error", None
        self._answered(held)
        if not value:
            return "miss", None
        self._meter.count(names.SHARED_CACHE_BYTES, len(value), direction="read")
        try:
            return "hit", await self._off_loop(
                len(value), unpack, key, value, size_bytes, self._secret, self._grid
            )
        except ForeignValue as reason:
            log.debug("shared image cache: a value was not used: %s", reason)
            return "foreign", None

    def _ended(self, call: asyncio.Task[Found]) -> None:
        self._calls.discard(call)
        self._slots.release()

    async def _write(self, key: bytes, prepared: Prepared) -> str:
        """What became of it, for the metric."""
        held = self._breaker.enter(self._clock.monotonic())
        if held is None:
            return "dropped"
        try:
            value = await self._off_loop(self._file_bytes(prepared), pack, key, prepared, self._secret)
            await self._store.set(name_of(key), value, self._ttl_s)
        except StoreFault as fault:
            self._failed(held, str(fault))
            return "error"
        except asyncio.CancelledError:
            self._breaker.left(held)
            raise
        self._answered(held)
        self._meter.count(names.SHARED_CACHE_BYTES, len(value), direction="written")
        return "stored"

    def _written(self, result: str) -> None:
        self._meter.count(names.SHARED_CACHE_WRITES, result=result)

    def _answered(self, held: Pass) -> None:
        self._breaker.succeeded(held)
        self._fault = ""
        if self._told_down and self.state is State.CLOSED:
            self._told_down = False
            log.info("shared image cache %s answers again", self._where)

    def _failed(self, held: Pass, reason: str) -> None:
        now = self._clock.monotonic()
        self._breaker.failed(held, now)
        self._fault = reason
        if not self._told_down and self._breaker.state(now) is State.OPEN:
            self._told_down = True
            log.warning("shared image cache %s: %s; images are prepared without it", self._where, reason)

    async def _off_loop(
        self, size_bytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if size_bytes <= INLINE_BYTES:
            return function(*args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, partial(function, *args, **kwargs)
        )

    @staticmethod
    def _file_bytes(prepared: Prepared) -> int:
        return len(prepared.data_uri) * 3 // 4
