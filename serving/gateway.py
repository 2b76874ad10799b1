"""The gateway process: `python -m serving.gateway --run RUN`. Builds every part, owns their lifetimes, drains, stops."""

import argparse
import asyncio
import json
import logging
import random
import secrets
import signal
import sys
from importlib.metadata import version
from pathlib import Path

from prometheus_client import CollectorRegistry, disable_created_metrics

from serving.access.budget import body_share
from serving.access.fetch import Fetcher
from serving.access.grid import grid_for
from serving.access.prepare import Access
from serving.access.room import Room
from serving.access.shared.configured import shared_tier
from serving.access.workers import DecodePool
from serving.admin.admin import Admin
from serving.answer import Answerer
from serving.api import Api
from serving.background import kept
from serving.dispatch import Dispatcher
from serving.draining import Draining
from serving.engine_body import Rendezvous
from serving.fallback import Fallback
from serving.health import Prober
from serving.keys import Keys
from serving.legs import Legs
from serving.lifecycle import Lifecycle
from serving.pairs import PairBook
from serving.parts import Parts
from serving.pool_watch import PoolWatch
from serving.pools import Pools
from serving.result import Result
from serving.schedule.admit import Admission
from serving.schedule.configured import rules_of
from serving.schedule.floors import Floors
from serving.schedule.retry import Retries
from serving.schedule.shared.configured import negotiator
from serving.server import listen, server_of
from serving.service import Service
from serving.spending import Spending
from serving.status import Status
from serving.storage.storage import open_storage
from serving.telemetry import Telemetry
from serving.tokenizer.counting import TextCounter
from serving.trace import JOURNAL
from toolkit.core import names
from toolkit.core.clock import Clock, SystemClock
from toolkit.core.errors import ToolkitError
from toolkit.core.http.client import HttpClient
from toolkit.core.journal import Journal
from toolkit.core.sample import Sample

log = logging.getLogger("toolkit.gateway")


LAG_PERIOD_S = 0.25


class Gateway:
    """Every part of one gateway, built from a service description."""

    def __init__(self, service: Service, run_dir: Path, clock: Clock, source: random.Random) -> None:
        config = service.config
        self.service = service
        self.telemetry = Telemetry(CollectorRegistry(), version("mm-serving-toolkit"))
        self.journal = Journal(
            run_dir / "journal",
            JOURNAL,
            max_file_bytes=config.journal.max_file_bytes,
            keep_files=config.journal.keep_files,
            on_fault=log.error,
        )
        self._uncounted = False  # whether that a request could not be counted has been told
        self.client = HttpClient()
        self.dispatcher = Dispatcher(
            self.client,
            clock,
            Rendezvous(source),
            lambda engine: self.telemetry.count(names.ABORTS, engine=engine),
        )
        self.book = PairBook(
            service.prefills,
            service.decodes,
            Pools(config.pools, (prefill.name for prefill in service.prefills)),
            config.pairing.affinity_bound if config.pairing.affinity else None,
            lambda pool, by: self.telemetry.count(names.PAIRS_TAKEN, pool=pool, by=by),
        )
        grid = grid_for(config.model, Path(service.model_path) if service.model_path else None)
        self.prober = Prober(
            self.book,
            self.client,
            self.dispatcher,
            clock,
            service.model_name,
            interval_s=config.gateway.health_interval_s,
            handover=None if grid.family == "text" else config.access.handover,
        )
        self.pool = DecodePool(config.access, clock)
        fetcher = Fetcher(config.access, self.pool, clock, meter=self.telemetry)
        shared = shared_tier(config.access, grid, clock, self.telemetry)
        storage = open_storage(config.storage, run_dir.parent, clock, source, self.telemetry)
        self.storage = storage
        self.access = Access(
            config.access,
            grid,
            fetcher,
            self.pool,
            clock,
            self.telemetry,
            shared,
            storage.image if storage is not None and config.storage.images else None,
        )
        self.bodies = Room(**body_share(config.access, config.gateway.max_body_bytes))
        self.admission = Admission(rules_of(config))
        self.retries = Retries(config.retry, source)
        self.fallback = Fallback(config.fallback, Legs(self.client, clock), clock, self.telemetry)
        self.keys = Keys.load(config.gateway.api_keys_file)
        self.tokens = TextCounter()
        self._family = grid.family
        self.status = Status(
            service,
            self.book,
            self.prober,
            self.admission,
            self.retries,
            clock,
            self.pool,
            self.access,
            self.bodies,
            self.telemetry,
            self.journal,
            storage,
        )
        parts = Parts(
            config,
            service.model_name,
            vocabulary(service.model_path),
            self.tokens,
            self.access,
            self.bodies,
            self.admission,
            Answerer(
                self.book, self.dispatcher, clock, self.prober.lost, self.prober.look_at_all, self.retries
            ),
            self.keys,
            clock,
            self._record,
            Spending(Floors(), clock),
            self.fallback,
            self._keep_result if config.storage.results else None,
            service.own_key,
        )
        self.lifecycle = Lifecycle(parts)
        self.kv = PoolWatch(
            self.client,
            service.decodes,
            self.book.is_up,
            self.lifecycle.pool_told,
            config.lease.look_interval_s,
        )
        self.sharing = negotiator(
            config.shared,
            service.decodes,
            self.admission,
            self.retries,
            clock,
            self.lifecycle.move,
            self.lifecycle.revoke,
            lambda result: self.telemetry.count(names.LEDGER_RENEWALS, result=result),
            self.kv.identities,
        )
        self.status.sharing = self.lifecycle.sharing = self.sharing
        self.api = Api(self.lifecycle, self.keys, self.status)
        self.admin = Admin(
            service,
            run_dir,
            clock,
            self.book,
            self.admission,
            self.retries,
            self.lifecycle,
            self.telemetry,
            self.status.stores,
        )

    def _record(self, sample: Sample, gaps_s: list[float]) -> None:
        self.journal.append(sample.to_dict())
        try:
            self.telemetry.sample(sample, gaps_s)
        except Exception:
            if not self._uncounted:
                log.exception("request %s is in the journal but not in all metrics", sample.request_id)
            self._uncounted = True

    def _keep_result(self, result: Result, sample: Sample) -> None:
        assert self.storage is not None
        self.storage.result(
            sample.request_id, sample.arrived_at, result.size, lambda: result.document(sample)
        )

    async def start(self) -> None:
        """Begin what needs the event loop. Raises EnvironmentFault."""
        self.admin.restore()
        await self.tokens.load(self.service.config, self.service.model_path, self._family)
        await self.access.start()
        if self.storage is not None:
            await self.storage.start()

    async def close(self) -> None:
        """Release everything. Idempotent."""
        await self.dispatcher.drain()
        if self.sharing is not None:
            await self.sharing.close()
        await self.client.close()
        await self.access.close()
        self.pool.close()
        self.tokens.close()
        if self.storage is not None:
            await self.storage.close()
        await asyncio.to_thread(self.journal.close)

    async def watch_lag(self) -> None:
        """Observe how late the loop runs a timer, and bury decoding processes that were killed, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self.telemetry.observe(names.LOOP_LAG, max(0.0, loop.time() - due))
            self.pool.reap()


def vocabulary(model_path: str) -> int | None:
    """The model's vocabulary size by its config.json; None where that is not on this machine."""
    try:
        document = json.loads((Path(model_path) / "config.json").read_text(encoding="utf-8"))
        size = (document.get("text_config") or document).get("vocab_size") if model_path else None
    except (OSError, ValueError, AttributeError):
        return None
    return size if isinstance(size, int) and size > 0 else None


async def serve(service: Service, run_dir: Path) -> None:
    """Serve until SIGTERM or SIGINT, then drain and release."""
    listener = listen(service.config.gateway.host, service.config.gateway.port)
    admin_listener = listen(service.config.admin.host, service.config.admin.port)
    gateway = Gateway(service, run_dir, SystemClock(), random.Random(secrets.randbits(256)))
    front, back = server_of(gateway.api.handle), server_of(gateway.admin.handle)
    draining = Draining(gateway.lifecycle, gateway.status, service.config.gateway, front.last_of_connections)
    await gateway.start()
    gateway.admin.open(admin_listener.getsockname()[1])
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        if stop.is_set():
            draining.hurry()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    background: list[asyncio.Task[None]] = [
        asyncio.create_task(kept(name, run))
        for name, run in (
            ("the prober", gateway.prober.run),
            ("the watch over KV pools", gateway.kv.run),
            *([("sharing", gateway.sharing.run)] if gateway.sharing is not None else []),
            ("the watch over the loop", gateway.watch_lag),
            ("the expiry of changes", gateway.admin.desk.run),
        )
    ]
    gateway.pool.warm()
    serving = [
        asyncio.create_task(front.serve(sockets=[listener])),
        asyncio.create_task(back.serve(sockets=[admin_listener])),
    ]
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            await draining.run()
        front.should_exit = back.should_exit = True
        await asyncio.gather(*serving)
    finally:
        stopped.cancel()
        for task in background:
            task.cancel()
        await asyncio.gather(*background, stopped, return_exceptions=True)
        await gateway.close()


def main() -> int:
    """Entry point of the gateway process; exit code 3 when it cannot start."""
    parser = argparse.ArgumentParser(description="The gateway of one run folder.")
    parser.add_argument("--run", type=Path, required=True, help="run folder that holds service.json")
    run_dir: Path = parser.parse_args().run
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nothing reads
    import uvloop

    try:
        uvloop.run(serve(Service.read(run_dir), run_dir))
    except ToolkitError as error:
        log.error("%s", error.message)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
