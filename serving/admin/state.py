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
            "ready": book.ready and not lifecycle.stopping,
            "stopping": lifecycle.stopping,
            "open_requests": lifecycle.open_requests,
            "preparing": admission.seated,
            "queued": admission.queued,
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
            }
            for name, one in book.instances.items()
        ],
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
        "ending": [{"change": change.id, "at": change.until} for change in ledger.ending],
    }
