"""What the gateway says about itself: readiness, models, metrics."""

import orjson

from serving.access.prepare import TIER, Access
from serving.access.room import Room
from serving.access.workers import DecodePool
from serving.health import Prober
from serving.pairs import PairBook
from serving.schedule.admit import Admission
from serving.schedule.retry import Retries
from serving.schedule.shared.negotiator import Negotiator
from serving.service import Service
from serving.storage.storage import Storage
from serving.telemetry import CONTENT_TYPE, Telemetry
from toolkit.core import names
from toolkit.core.clock import Clock
from toolkit.core.journal import Journal
from toolkit.core.sample import SloClass, WorkloadClass

Page = tuple[int, str, bytes]


class Status:
    """Pages made from the live state at the moment they are asked for."""

    def __init__(
        self,
        service: Service,
        book: PairBook,
        prober: Prober,
        admission: Admission,
        retries: Retries,
        clock: Clock,
        pool: DecodePool,
        access: Access,
        bodies: Room,
        telemetry: Telemetry,
        journal: Journal,
        storage: Storage | None = None,
    ) -> None:
        self._service = service
        self._book = book
        self._prober = prober
        self._admission = admission
        self._retries = retries
        self._clock = clock
        self._pool = pool
        self._access = access
        self._bodies = bodies
        self._telemetry = telemetry
        self._journal = journal
        self._storage = storage
        self._dropped_told = self._lost_told = 0
        self.stopping = False
        self.sharing: Negotiator | None = None

    def ready(self) -> Page:
        """200 while a pair is in rotation, else 503 with what stands in the way."""
        sharing = self.sharing
        settled = self._admission.leases.settled  # else requests would enter that no pool has room for
        ready = self._book.ready and settled and not self.stopping and (sharing is None or sharing.ready)
        document = {
            "status": "ready" if ready else "stopping" if self.stopping else "not ready",
            "engines": {name: self._book.is_up(name) for name in self._book.engines},
            "pairs": {state.pair.name: self._book.in_rotation(state) for state in self._book.pairs.values()},
            "pools": {pool.name: self._book.is_served(pool) for pool in self._book.pools.all},
            "instances": {
                name: {
                    "tokens": one.tokens,
                    "weight": one.weight,
                    "drained": one.drained,
                    "pools": self._book.pools.of_prefill(name),
                }
                for name, one in self._book.instances.items()
            },
            "faults": self._prober.faults,
            "stores": self.stores(),
        }
        if sharing is not None:
            document["shared"] = sharing.state.document()
        return 200 if ready else 503, "application/json", orjson.dumps(document)

    def stores(self) -> dict[str, str]:
        """What is known of each store that requests go on without: "works", "unknown", or "fails: " and why."""
        known = {
            "object store": None if self._storage is None else self._storage.standing,
            "shared cache": self._access.shared_standing,
            "shared ledger": None if self.sharing is None else self.sharing.state.told,
        }
        return {name: standing for name, standing in known.items() if standing is not None}

    def models(self) -> Page:
        """The OpenAI model list."""
        model = {
            "id": self._service.model_name,
            "object": "model",
            "created": int(self._service.started_at),
            "owned_by": "mm-serving-toolkit",
        }
        return 200, "application/json", orjson.dumps({"object": "list", "data": [model]})

    def metrics(self) -> Page:
        """The exposition text; gauges are read from their owners now."""
        telemetry = self._telemetry
        telemetry.gauge(names.SEATED, self._admission.seated)
        telemetry.gauge(names.WAITING, self._admission.queued)
        telemetry.gauge(names.IN_FLIGHT, self._admission.running)
        telemetry.gauge(names.IN_FLIGHT_LIMIT, self._admission.limit)
        queued = self._admission.queued_by_class()
        for workload in WorkloadClass:
            for slo in SloClass:
                telemetry.gauge(
                    names.QUEUED, queued[workload, slo], workload_class=workload.value, slo_class=slo.value
                )
        telemetry.gauge(names.KV_WAITING, self._admission.lacking)
        for engine in self._service.decodes:
            windows = self._admission.windows
            telemetry.gauge(names.WINDOW, windows.widths.get(engine.name, 0), decode=engine.name)
            telemetry.gauge(names.WINDOW_INSIDE, windows.inside(engine.name), decode=engine.name)
            kv = self._admission.leases.pools.get(engine.name)
            pages = (kv.pages, kv.leased, kv.foreign) if kv is not None else (0, 0, 0)
            for metric, count in zip((names.KV_POOL, names.KV_LEASED, names.KV_FOREIGN), pages, strict=True):
                size = kv.page_size if kv is not None else 0
                telemetry.gauge(metric, count * size, decode=engine.name)
        telemetry.gauge(names.SIMULATED, self._service.config.engine.kind == "simulated")
        telemetry.gauge(names.RETRY_BUDGET, self._retries.left(self._clock.monotonic()))
        if self.sharing is not None:
            self.sharing.state.show(telemetry.gauge)
        for lane, line in self._pool.lines.items():
            telemetry.gauge(names.DECODE_BUSY, line.working, lane=lane)
            telemetry.gauge(names.DECODE_QUEUED, line.waiting, lane=lane)
            telemetry.gauge(names.DECODE_TAKEN, line.taken_bytes, lane=lane)
        lost = self._pool.lost
        telemetry.count(names.DECODE_LOST, lost - self._lost_told)
        self._lost_told = lost
        telemetry.gauge(names.BODY_HELD, self._bodies.share.held_bytes)
        telemetry.gauge(names.BODY_WAITING, self._bodies.share.waiting)
        telemetry.gauge(names.IMAGE_CACHE_BYTES, self._access.held_bytes, tier=TIER)
        telemetry.gauge(names.IMAGE_CACHE_ENTRIES, self._access.held_images, tier=TIER)
        if self._access.shared_up is not None:
            telemetry.gauge(names.SHARED_CACHE_UP, self._access.shared_up)
        for kind in self._admission.shares.kinds:
            telemetry.gauge(names.POOL_HELD, self._admission.shares.held(kind), pool=kind)
        for name, one in self._book.instances.items():
            role = one.endpoint.role
            telemetry.gauge(names.ENGINE_UP, self._book.is_up(name), engine=name, role=role)
            telemetry.gauge(names.INSTANCE_TOKENS, one.tokens, engine=name, role=role)
            telemetry.gauge(names.INSTANCE_WEIGHT, one.weight, engine=name)
            telemetry.gauge(names.INSTANCE_DRAINED, one.drained, engine=name)
            for pool in self._book.pools.of_prefill(name):
                telemetry.gauge(names.INSTANCE_POOL, 1, engine=name, pool=pool)
        for (prefill, decode), state in self._book.pairs.items():
            telemetry.gauge(names.PAIR_READY, self._book.in_rotation(state), prefill=prefill, decode=decode)
            telemetry.gauge(names.PAIR_IN_FLIGHT, state.in_flight, prefill=prefill, decode=decode)
        if self._storage is not None:
            self._storage.show()
        dropped = self._journal.dropped
        telemetry.count(names.JOURNAL_DROPPED, dropped - self._dropped_told)
        self._dropped_told = dropped
        return 200, CONTENT_TYPE, telemetry.render()
