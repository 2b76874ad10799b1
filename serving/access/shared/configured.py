"""The shared tier that a configuration asks for."""

from pathlib import Path

from serving import store_url
from serving.access.grid import ImageGrid
from serving.access.meter import Meter
from serving.access.shared.store import RedisStore
from serving.access.shared.tier import SharedTier
from serving.config import AccessConfig
from toolkit.core.clock import Clock
from toolkit.core.errors import UsageFault

LEAST_SECRET_BYTES = 16


def shared_tier(config: AccessConfig, grid: ImageGrid, clock: Clock, meter: Meter) -> SharedTier | None:
    """None where none is configured. Connects to nothing yet. Raises UsageFault for a secret that cannot be used."""
    if not config.shared_cache_url:
        return None
    return SharedTier(
        config,
        grid,
        RedisStore(config.shared_cache_url),
        clock,
        meter,
        secret_of(config.shared_cache_key_file),
        store_url.address(config.shared_cache_url),
    )


def secret_of(path: str) -> bytes:
    """What the file holds, without white space around it; empty where no file is named. Raises UsageFault."""
    if not path:
        return b""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise UsageFault(
            f"access.shared_cache_key_file: {path} cannot be read ({error.strerror})."
        ) from error
    if len(secret) < LEAST_SECRET_BYTES:
        raise UsageFault(
            f"access.shared_cache_key_file: {path} holds {len(secret)} bytes; {LEAST_SECRET_BYTES} or more are a secret."
        )
    return secret
