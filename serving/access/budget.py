"""How the gateway's memory for work in progress is split. Pure; the fractions are of what the cache leaves.

Each part waits for nothing but itself, so no request can hold one and starve another of it.
"""

from dataclasses import dataclass

from serving.config import BODY_COPIES, MB, AccessConfig


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes.

    bodies: uploads until the engine's body is made, then that. downloads: image files by URL. light, apart, heavy: what
    decoding takes at its peaks, by lane. The rest is for the decoding processes themselves.
    """

    bodies: int
    downloads: int
    light: int
    apart: int
    heavy: int


def budget_of(config: AccessConfig) -> Budget:
    """The split of access.memory_mb less what the caches take."""
    part = (config.memory_mb * MB - config.set_aside_bytes) // 16
    return Budget(bodies=5 * part, downloads=part, light=part, apart=part, heavy=7 * part)


def body_share(config: AccessConfig, max_body_bytes: int) -> dict[str, int]:
    """How the part for bodies is shared (share.Share's arguments): an eighth is the eldest's reserve, another is kept from
    all who want more than a thirty-second; less of both where the largest body would not fit beside them."""
    bodies = budget_of(config).bodies
    spare = min(bodies // 4, bodies - BODY_COPIES * max_body_bytes)
    return {
        "size_bytes": bodies,
        "reserve_bytes": spare // 2,
        "small_bytes": bodies // 32,
        "small_part_bytes": spare // 2,
    }
