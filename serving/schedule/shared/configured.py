"""The negotiator that a configuration asks for."""

import uuid
from collections.abc import Callable, Iterable

from serving import store_url
from serving.schedule.admit import Admission, Moves
from serving.schedule.retry import Retries
from serving.schedule.shared.footing import CALL, LIFE, Footing
from serving.schedule.shared.ledger import ServerLedger
from serving.schedule.shared.negotiator import Negotiator
from serving.service import EngineEndpoint
from serving.shared_config import SharedConfig
from toolkit.core.clock import Clock
from toolkit.core.errors import UsageFault


def negotiator(
    config: SharedConfig,
    decodes: Iterable[EngineEndpoint],
    admission: Admission,
    retries: Retries,
    clock: Clock,
    on_moves: Callable[[Moves], None],
    revoke: Callable[[list[str]], None],
    on_renewal: Callable[[str], None],
) -> Negotiator | None:
    """None where none is configured. Connects to nothing yet. Raises UsageFault for files that cannot be used."""
    if not config.url:
        return None
    gateway = uuid.uuid4().hex
    life_s = LIFE * config.ttl_s
    try:
        ledger = ServerLedger(config.url, config.name, gateway, CALL * life_s)
    except OSError as error:
        raise UsageFault(f"shared.url: a certificate file cannot be used ({error}).") from error
    return Negotiator(
        gateway,
        ledger,
        Footing(life_s, config.alone),
        admission,
        retries,
        {decode.name: decode.url for decode in decodes},
        clock,
        on_moves,
        revoke,
        on_renewal,
        store_url.address(config.url),
    )
