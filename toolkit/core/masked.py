"""URLs that may hold a password: shown without it, written whole only where that is asked for."""

import re
from typing import Annotated, Any

from pydantic import PlainSerializer, SerializationInfo

MASK = "***"
WHOLE: dict[str, Any] = {"whole": True}
"""The serialization context that keeps what is masked otherwise: `model.model_dump_json(context=WHOLE)`."""


def masked(text: str) -> str:
    """The text with user and password of every URL in it replaced: redis://***@host."""
    return re.sub(r"://[^\s'\"]*@", f"://{MASK}@", text)


def _serialize(url: str, info: SerializationInfo) -> str:
    return url if (info.context or {}).get("whole") else masked(url)


MaskedUrl = Annotated[str, PlainSerializer(_serialize, return_type=str)]
"""A field of a Section. Use with Field(repr=False)."""
