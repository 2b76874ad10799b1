"""The negotiator that a configuration asks for."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from serving import store_url
from serving.schedule.admit import Admission, Moves
from serving.schedule.retry import Retries
from serving.schedule.shared.footing import CALL, LIFE, Footing
from serving.schedule.shared.ledger import LedgerFault, ServerLedger, other_ttl
from serving.schedule.shared.negotiator import Negotiator
from serving.service import EngineEndpoint
from serving.shared_config import SharedConfig
from toolkit.core.clock import Clock
from toolkit.core.errors import UsageFault

LOOK_S = 3.0
LOCAL = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "::1"})


def negotiator(
    config: SharedConfig,
    decodes: Iterable[EngineEndpoint],
    admission: Admission,
    retries: Retries,
    clock: Clock,
    on_moves: Callable[[Moves], None],
    revoke: Callable[[list[str]], None],
    on_renewal: Callable[[str], None],
    identities: Mapping[str, str] = MappingProxyType({}),
) -> Negotiator | None:
    """None where none is configured. identities: what each decode says it is, kept true from outside. Connects to nothing yet. Raises UsageFault for files that cannot be used."""
    if not config.url:
        return None
    gateway = uuid.uuid4().hex
    life_s = LIFE * config.ttl_s
    ledger = _ledger(config, gateway, CALL * life_s)
    return Negotiator(
        gateway,
        ledger,
        Footing(life_s, config.alone),
        admission,
        retries,
        {decode.name: common_name(decode.url) for decode in decodes},
        clock,
        on_moves,
        revoke,
        on_renewal,
        store_url.address(config.url),
        identities,
    )


def common_name(url: str) -> str:
    """An engine's URL as all gateways on this machine would write it. Other names are not looked up: each gateway could be told
    another address, or none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"http://127.0.0.1:{parts.port}" if host in LOCAL else url


async def first_look(config: SharedConfig) -> str:
    """Before anything is started: why the ledger cannot be used now; empty where it can, or none is configured. Raises
    UsageFault where the gateways that share there have another ttl_s, which nothing but a change here or there will mend."""
    if not config.url:
        return ""
    where = store_url.address(config.url)
    ledger = _ledger(config, "", LOOK_S)
    try:
        async with asyncio.timeout(LOOK_S):
            theirs_ms = await ledger.life()
    except (TimeoutError, LedgerFault) as fault:
        return f"the shared ledger {where} does not work ({str(fault) or 'no answer in time'})"
    finally:
        await ledger.close()
    ours_ms = int(1000 * LIFE * config.ttl_s)
    if theirs_ms not in (0, ours_ms):
        raise UsageFault(f"shared ledger {where}: {other_ttl(theirs_ms, ours_ms)}.")
    return ""


def _ledger(config: SharedConfig, gateway: str, call_s: float) -> ServerLedger:
    try:
        return ServerLedger(config.url, config.name, gateway, call_s)
    except OSError as error:
        raise UsageFault(f"shared.url: a certificate file cannot be used ({error}).") from error
