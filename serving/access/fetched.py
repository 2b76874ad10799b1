"""An image file as it came in, and its name: the digest of its bytes."""

import hashlib
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Fetched:
    """An image file, or the news that what the caller holds of it is still right.

    data: None for the latter; digest: SHA-256 of the bytes; keep: whether anything of it may outlast the
    request; read: how it was come by; place: keeps the room in memory that a download has, for as long as it lives.
    """

    data: bytes | None
    digest: bytes
    keep: bool = True
    read: Literal["data", "downloaded", "unchanged", "fresh"] = "data"
    place: object = field(default=None, compare=False, repr=False)


def digest(data: bytes) -> bytes:
    """SHA-256; about 2 ms per MB where the CPU has no instruction for it, without the interpreter lock."""
    return hashlib.sha256(data).digest()
