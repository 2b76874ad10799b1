"""The shared tier that a configuration asks for."""

from serving import store_url
from serving.access.grid import ImageGrid
from serving.access.meter import Meter
from serving.access.shared.secret import secret_of
from serving.access.shared.tier import SharedTier
from serving.config import AccessConfig
from toolkit.core.clock import Clock
from toolkit.core.errors import UsageFault


def shared_tier(config: AccessConfig, grid: ImageGrid, clock: Clock, meter: Meter) -> SharedTier | None:
    """None where none is configured. Connects to nothing yet. Raises UsageFault for files that cannot be used."""
    if not config.shared_cache_url:
        return None
    from serving.access.shared.redis_store import RedisStore

    try:
        store = RedisStore(config.shared_cache_url)
    except OSError as error:
        raise UsageFault(f"access.shared_cache_url: a certificate file cannot be used ({error}).") from error
    return SharedTier(
        config,
        grid,
        store,
        clock,
        meter,
        secret_of(config.shared_cache_key_file),
        store_url.address(config.shared_cache_url),
    )
