"""One stand-in engine put together: its parts, its ports, its life. A process (__main__.py) or a test's event loop runs it."""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from serving.engines.simulated.effects import Limits, Role
from serving.engines.simulated.engine import Engine
from serving.engines.simulated.http import App, Call, app
from serving.engines.simulated.listener import Listener
from serving.engines.simulated.media import Eyes, fetcher
from serving.engines.simulated.metrics import ITL_S, TTFT_S, Metrics
from serving.engines.simulated.model import CPU_TINY, Costs
from serving.engines.simulated.pages import Identity
from serving.engines.simulated.rendezvous import Heartbeat, Peers
from serving.engines.simulated.scheduler import Scheduler
from serving.engines.simulated.server import Server
from serving.engines.simulated.wire import WiredCall
from toolkit.core.clock import Clock
from toolkit.core.http.client import HttpClient


@dataclass(frozen=True, slots=True)
class Settings:
    """What a stand-in is. Ports: 0 lets the system choose; a prefill engine has a bootstrap port too.

    preset: the name of its costs, as told to whoever asks. answer_tokens: how many tokens an answer has that nothing else
    ends; 0: as many as its seed says. images: the smallest and largest area in pixels.
    """

    role: Role
    host: str = "127.0.0.1"
    port: int = 0
    bootstrap_port: int = 0
    model_name: str = "simulated"
    preset: str = "cpu_tiny"
    costs: Costs = CPU_TINY
    limits: Limits = field(default_factory=Limits)
    images: tuple[int, int] = (3136, 200_704)
    fetch_images: bool = False
    answer_tokens: int = 0
    ttft_s: tuple[float, ...] = TTFT_S
    itl_s: tuple[float, ...] = ITL_S
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    health_generates: bool = True


def untouched(inner: App) -> App:
    return inner


class StandIn:
    """Owns the sockets, the timers and the tasks of one engine; `stop` releases them all.

    source: draws its session name; what faults draw has a seed of its own. around: lays something around what answers at
    the engine's port; tests listen there.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        source: random.Random,
        around: Callable[[App], App] = untouched,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._source = source
        self._around = around
        self._client = HttpClient()
        self._listeners: list[Listener] = []
        metrics = Metrics(settings.model_name, settings.role, os.getpid(), settings.ttft_s, settings.itl_s)
        scheduler = Scheduler(settings.role, settings.costs, settings.limits, clock.monotonic())
        self.engine = Engine(scheduler, clock, metrics.observe)
        self._metrics = metrics
        self.port = settings.port
        self.bootstrap_port = settings.bootstrap_port
        self._server: Server | None = None
        self._peers: Peers | None = None

    @property
    def url(self) -> str:
        return f"http://{self._settings.host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises OSError when a port cannot be had."""
        settings = self._settings
        session = f"{settings.host}:{self._source.getrandbits(64):016x}"
        self._peers = peers = Peers(self.engine, self._client, session, settings.heartbeat)
        if settings.role == "prefill":
            self.bootstrap_port = await self._listen(app(peers.bootstrap, Call), self.bootstrap_port)
        identity = Identity(
            settings.model_name,
            settings.role,
            self.port,
            self.bootstrap_port,
            settings.preset,
            settings.health_generates,
        )
        fetch = fetcher(self._client) if settings.fetch_images else None
        eyes = Eyes(*settings.images, fetch)
        self._server = Server(
            identity, self.engine, peers, eyes, self._metrics, self._clock, settings.answer_tokens
        )
        self.port = await self._listen(self._around(app(self._server.handle, WiredCall)), self.port)
        peers.own_url = self.url

    async def drained(self) -> None:
        """Refuse health checks from now on, as SGLang after SIGTERM, and return when no request is under way."""
        assert self._server is not None
        self._server.stopping = True
        await self._server.idle.wait()

    async def stop(self) -> None:
        """Break off whatever is open. Idempotent."""
        for listener in self._listeners:
            await listener.close()
        self.engine.close()
        if self._peers is not None:
            await self._peers.close()
        await self._client.close()

    async def _listen(self, application: App, port: int) -> int:
        listener = Listener(application, self._settings.host, port)
        await listener.start()
        self._listeners.append(listener)
        return listener.port
