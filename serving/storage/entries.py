"""What is stored, under which key, and how an entry is called while it waits in the spool.

A spool file's name says all there is to know of it, its content is the object's, so one rename makes an entry whole:

    image.SHA256.jpeg                  -> images/ab/SHA256                    as received
    result.20261130.req-0f3a.json      -> results/2026/11/30/req-0f3a.json    request, answer, sample
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

Kind = Literal["image", "result"]
KINDS: tuple[Kind, ...] = ("image", "result")
FOLDERS: dict[Kind, str] = {"image": "images", "result": "results"}

_IMAGE = re.compile(r"image\.([0-9a-f]{64})\.([a-z0-9]{1,16})")
_RESULT = re.compile(r"result\.(\d{4})(\d\d)(\d\d)\.([A-Za-z0-9_-]{1,100})\.json")
_OURS: dict[Kind, re.Pattern[str]] = {
    "image": re.compile(r"images/[0-9a-f]{2}/[0-9a-f]{64}"),
    "result": re.compile(r"results/\d{4}/\d\d/\d\d/[A-Za-z0-9_-]{1,100}\.json"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One object to be. name: of its file in the spool; size: bytes."""

    name: str
    kind: Kind
    key: str
    content_type: str
    size: int


def image_name(digest: bytes, file_format: str) -> str:
    """digest: SHA-256 of the bytes; file_format: as probe tells it, in any case."""
    return f"image.{digest.hex()}.{file_format.lower()}"


def result_name(request_id: str, arrived_at: float) -> str:
    """arrived_at: Unix seconds; the day in the key is UTC."""
    return f"result.{datetime.fromtimestamp(arrived_at, UTC):%Y%m%d}.{request_id}.json"


def entry(name: str, size: int) -> Entry | None:
    """What a spool file stands for; None for a file that is none of ours."""
    if match := _IMAGE.fullmatch(name):
        digest, file_format = match.groups()
        return Entry(name, "image", f"images/{digest[:2]}/{digest}", f"image/{file_format}", size)
    if match := _RESULT.fullmatch(name):
        year, month, day, request_id = match.groups()
        key = f"results/{year}/{month}/{day}/{request_id}.json"
        return Entry(name, "result", key, "application/json", size)
    return None


def kind_of(key: str) -> Kind | None:
    """Which of our objects a key names; None for one that somebody else has put there."""
    return next((kind for kind, pattern in _OURS.items() if pattern.fullmatch(key)), None)
