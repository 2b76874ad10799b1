"""What is so now, for people and runbooks: made when it is asked for."""

from typing import Any

from serving.admin.ledger import Ledger
from serving.lifecycle import Lifecycle
from serving.pairs import PairBook
from serving.schedule.admit import Admission
from serving.schedule.retry import Retries
from serving.service import Service
from toolkit.core.clock import Clock


def state(
    service: Service,
    ledger: Ledger,
    book: PairBook,
    admission: Admission,
    retries: Retries,
    clock: Clock,
    lifecycle: Lifecycle,
) -> dict[str, Any]:
    """Times are Unix seconds. Keys are only ever added."""
    return {
        "version": 1,
        "gateway": {
            "url": service.gateway_url,
            "model": service.model_name,
            "ready": book.ready
            and admission.leases.settled
            and not lifecycle.stopping
            and lifecycle.has_part,
            "stopping": lifecycle.stopping,
            "open_requests": lifecycle.open_requests,
            "preparing": admission.seated,
            "queued": admission.queued,
            "queued_by_class": [
                {"workload_class": workload.value, "slo_class": slo.value, "queued": count}
                for (workload, slo), count in sorted(admission.queued_by_class().items())
                if count
            ],
            "in_flight": admission.running,
            "in_flight_limit": admission.limit,
            "retries_left": retries.left(clock.monotonic()),
        },
        "instances": [
            {
                "name": name,
                "role": one.endpoint.role,
                "url": one.endpoint.url,
                "up": book.is_up(name),
                "drained": one.drained,
                "weight": one.weight,
                "requests": one.requests,
                "tokens": one.tokens,
                "pools": book.pools.of_prefill(name),
            }
            for name, one in book.instances.items()
        ],
        "pools": [
            {
                "name": pool.name,
                "held_tokens": admission.shares.held(pool.name) if service.config.pools else None,
                "prefills": sorted(pool.prefills),
                "served": book.is_served(pool),
            }
            for pool in book.pools.all
        ],
        "kv": _kv(admission),
        "shared": None if lifecycle.sharing is None else lifecycle.sharing.state.document(),
        "pairs": [
            {
                "prefill": prefill,
                "decode": decode,
                "in_rotation": book.in_rotation(standing),
                "serves": book.serves(standing),
                "suspect": standing.suspect,
                "in_flight": standing.in_flight,
            }
            for (prefill, decode), standing in book.pairs.items()
        ],
        "revision": ledger.changes[-1].id if ledger.changes else 0,
        "settings": ledger.present.values(),
        "configured": ledger.overridden(),
        "ending": [
            {"change": change.id, "at": change.until, "kept": ledger.kept.get(change.id)}
            for change in ledger.ending
        ],
    }


def _kv(admission: Admission) -> dict[str, Any]:
    """Pools and leases. binding: false where some decode in rotation does not tell its pool, and requests enter without."""
    leases = admission.leases
    return {
        "binding": leases.binding,
        "cap": leases.cap,
        "lacking": admission.lacking,
        "pools": [
            {
                "decode": name,
                "tokens": pool.pages * pool.page_size,
                "page_size": pool.page_size,
                "leased": pool.leased * pool.page_size,
                "foreign": pool.foreign * pool.page_size,
                "free": pool.free * pool.page_size,
                "most": leases.cap_pages(pool) * pool.page_size,
                "reserved": name == leases.reserved,
            }
            for name, pool in sorted(leases.pools.items())
        ],
        "leases": [
            {"request": key, "decodes": [name for name, _ in lease.places], "tokens": lease.need.each}
            for key, lease in leases.held()
        ],
    }
