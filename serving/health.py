"""The prober: looks at every engine, and sends one small image through every pair that has to prove itself."""

import asyncio
import contextlib
import logging
from functools import partial

import orjson
import pybase64
from PIL import Image

from serving.access.encode import encode
from serving.attempt import Limits, Pair, Progress
from serving.config import Handover
from serving.dispatch import Dispatcher
from serving.engine_body import EngineBody
from serving.service import EngineEndpoint
from serving.standing import Standing
from serving.stream import TransferFailed
from toolkit.core.clock import Clock
from toolkit.core.errors import Busy, ToolkitError
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError

log = logging.getLogger("toolkit.health")

READY_TIMEOUT_S = 2.0
NEVER_UP_LOOK_S = 0.1
"""Between looks at an engine that has not been up yet: it may be ready any moment, and the service waits for it."""
PROBE_TIMEOUT_S = 120.0
"""The first image of a fresh engine took up to 35 s on a loaded 2-core machine: SGLang imports its processors lazily."""


PROBE_AGAIN_TIMEOUT_S = 10.0
"""For a pair that has served before: everything is loaded, so more than this is a stuck pair, not a slow one."""

MAX_LOADS_BYTES = 1_000_000

SLOW_LOOKS = 3
"""Looks at /ready in a row that may go unanswered while nothing comes out of the engine: under load it answers late, and taking
it out then sheds everything."""


class Prober:
    """Keeps the book true. One task per engine, one probe at a time per pair."""

    def __init__(
        self,
        book: Standing,
        client: HttpClient,
        dispatcher: Dispatcher,
        clock: Clock,
        model: str,
        *,
        interval_s: float,
        handover: Handover | None,
    ) -> None:
        self._book = book
        self._client = client
        self._dispatcher = dispatcher
        self._clock = clock
        self._body = probe_body(model, handover)
        self._interval_s = interval_s
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._look_now = {name: asyncio.Event() for name in book.engines}
        self.faults: dict[str, str] = {}

    async def run(self) -> None:
        """Look and probe until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for engine in self._book.engines.values():
                    group.create_task(self._watch(engine))
        finally:
            for task in self._probing.values():
                task.cancel()
            await asyncio.gather(*self._probing.values(), return_exceptions=True)

    def lost(self, engine: str) -> None:
        """A connection to the engine broke: out of rotation, and looked at now."""
        self._book.engine_seen(engine, up=False)
        self._look_now[engine].set()

    def look_at_all(self) -> None:
        """A pair became suspect: it is probed after a look at its engines, now."""
        for look_now in self._look_now.values():
            look_now.set()

    def wake(self) -> None:
        """Probe every pair that has to prove itself and is not being probed."""
        for pair in self._book.unproven():
            if pair.name not in self._probing:
                task = asyncio.get_running_loop().create_task(self._prove(pair), name=f"probe {pair.name}")
                self._probing[pair.name] = task
                task.add_done_callback(partial(self._probed, pair.name))

    def _probed(self, pair: str, _: asyncio.Task[None]) -> None:
        self._probing.pop(pair, None)

    async def _watch(self, engine: EngineEndpoint) -> None:
        slow, pause_s = 0, min(NEVER_UP_LOOK_S, self._interval_s)
        moves = self._book.engine_moves(engine.name)
        while True:
            up = await self._is_ready(engine)
            moved = self._book.engine_moves(engine.name) != moves
            moves = self._book.engine_moves(engine.name)
            slow = 0 if up is not None or moved else slow + 1
            if up is None:
                up = self._book.is_up(engine.name) and slow < SLOW_LOOKS
            if up != self._book.is_up(engine.name):
                log.info("engine %s is %s", engine.name, "up" if up else "down")
            self._book.engine_seen(engine.name, up)
            self.wake()
            if up:
                pause_s = self._interval_s
            look_now = self._look_now[engine.name]
            look_now.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await look_now.wait()

    async def _is_ready(self, engine: EngineEndpoint) -> bool | None:
        """None: no answer in time, which may be load."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                response = await self._client.send("GET", f"{engine.url}/ready")
                try:
                    await response.read(64_000)
                finally:
                    response.close()
        except TimeoutError:
            self.faults[engine.name] = f"/ready: no answer within {READY_TIMEOUT_S:.0f} s"
            return None
        except TransportError as error:
            self.faults[engine.name] = f"/ready: {error}"
            return False
        if response.status != 200:
            self.faults[engine.name] = f"/ready answered {response.status}"
            return False
        self.faults.pop(engine.name, None)
        return True

    async def _prove(self, pair: Pair) -> None:
        loaded = self._book.is_loaded(pair)
        patience_s = PROBE_AGAIN_TIMEOUT_S if loaded else PROBE_TIMEOUT_S
        pulses = await self._pulses(pair) if loaded else []
        limits = Limits(self._clock.monotonic() + patience_s, stall_s=patience_s, whole_s=patience_s)
        try:
            await self._dispatcher.whole(pair, self._body, limits, Progress())
        except ToolkitError as error:
            self.faults[pair.name] = str(error)
            log.warning("pair %s did not pass the probe: %s", pair.name, error)
            await self._failed(pair, error, pulses)
            return
        self.faults.pop(pair.name, None)
        log.info("pair %s is in rotation", pair.name)
        self._book.proven(pair)

    async def _failed(self, pair: Pair, error: ToolkitError, pulses: list[object]) -> None:
        """Load is no fault: a pair without room, or whose engines work while the probe waits, stays where it is."""
        if isinstance(error, TransferFailed):
            self._book.transfer_failed(pair, self._clock.monotonic())
        late = error.hop is not None
        if late and all(then != now for then, now in zip(pulses, await self._pulses(pair), strict=False)):
            self._book.probe_late(pair)
        elif not isinstance(error, Busy):
            self._book.disproved(pair)

    async def _pulses(self, pair: Pair) -> list[object]:
        """Of both engines, what changes while they work: what came out of them, and when their schedulers last told how
        they are (a frozen one tells nothing)."""
        engines = (pair.prefill, pair.decode)
        return [(self._book.engine_moves(engine.name), await self._pulse(engine)) for engine in engines]

    async def _pulse(self, engine: EngineEndpoint) -> object:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                response = await self._client.send("GET", f"{engine.url}/v1/loads?include=core")
                try:
                    body = await response.read(MAX_LOADS_BYTES)
                finally:
                    response.close()
            return [one["timestamp"] for one in orjson.loads(body)["loads"]]
        except (TimeoutError, TransportError, orjson.JSONDecodeError, KeyError, TypeError):
            return None


def probe_body(model: str, handover: Handover | None) -> EngineBody:
    """One token for a 56x56 grey picture, handed over as any is; None: for a word, where the model takes no images."""
    content: list[dict[str, object]] = [{"type": "text", "text": "ok"}]
    if handover is not None:
        file = encode(Image.new("RGB", (56, 56), (127, 127, 127)), handover)
        url = f"data:image/{handover};base64,{pybase64.b64encode_as_string(file)}"
        content.insert(0, {"type": "image_url", "image_url": {"url": url}})
    document = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 1,
        "stream": False,
    }
    return EngineBody(orjson.dumps(document)[:-1])
