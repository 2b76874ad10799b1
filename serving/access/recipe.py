"""Everything but an image's bytes that decides what becomes of it, as one digest.

Cached pictures are keyed by it, so that a gateway with another model, limit, handover or version never takes one
that it would not have made itself.
"""

import hashlib
from importlib.metadata import version
from pathlib import Path

from PIL import features

from serving.access.decoder import choose
from serving.access.grid import ImageGrid
from serving.config import AccessConfig

# Fields that decide when, how fast or whether, never what. A new field counts until it is named here.
_WITHOUT = frozenset(
    {
        "allowed_hosts",
        "blocked_hosts",
        "cache_mb",
        "decoder",  # whichever it comes to is named by itself
        "high_res_pixels",
        "host_failures",
        "max_downloads",
        "max_downloads_per_host",
        "max_images",
        "max_queued_images",
        "max_redirects",
        "only_hosts",
        "decode_cpu_ns_per_pixel",
        "decode_cpu_s",
        "memory_mb",
        "shared_cache_key_file",
        "shared_cache_max_entry_bytes",
        "shared_cache_timeout_ms",
        "shared_cache_ttl_s",
        "shared_cache_url",
        "url_timeout_s",
        "workers",
    }
)


def recipe(config: AccessConfig, grid: ImageGrid) -> bytes:
    """32 bytes: the limits, the handover, the grid with its bounds, the code of this package, its libraries."""
    parts = [
        config.model_dump_json(exclude=set(_WITHOUT)),
        repr(grid),
        f"mm-serving-toolkit {version('mm-serving-toolkit')}",
        *(f"{name} {features.version(name)}" for name in ("webp", "avif")),
        *choose(config.decoder).libraries,
        *(hashlib.sha256(path.read_bytes()).hexdigest() for path in _sources()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).digest()


def _sources() -> list[Path]:
    """The modules beside this one: between releases they change while the version does not."""
    return sorted(Path(__file__).parent.rglob("*.py"))
