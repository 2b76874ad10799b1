"""What the engines receive: the client's document with what the gateway owns, and the fields that differ per leg."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from serving.chat import ChatRequest, dump


@dataclass(frozen=True, slots=True)
class EngineBody:
    """The body for every leg, but for the fields that differ per leg: JSON without its closing brace.

    seed: the client's, when it asked for several choices; choice i gets seed + i, else all would be alike. priority: its level
    among those inside the engines (schedule/levels.py), for a header of the leg, which wins over a field of the client's.
    """

    open_json: bytes
    seed: int | None = None
    priority: int | None = None

    def for_leg(
        self, choice: int, *, rid: str, bootstrap_host: str, bootstrap_port: int, bootstrap_room: int
    ) -> tuple[bytes, bytes]:
        """The pieces of one leg's body; the big first one is shared, not copied."""
        own: dict[str, str | int] = {
            "rid": rid,
            "bootstrap_host": bootstrap_host,
            "bootstrap_port": bootstrap_port,
            "bootstrap_room": bootstrap_room,
        }
        if self.seed is not None:
            own["seed"] = self.seed + choice
        return self.open_json, b"," + orjson.dumps(own)[1:]


def compose(request: ChatRequest, prepared: Sequence[str], max_tokens: int, model: str) -> EngineBody:
    """The client's document with prepared images (data URIs, in slot order), max_tokens and the engine's model name.

    It asks for one choice: SGLang 0.5.23 reuses one bootstrap room and makes up rids for n > 1 (tokenizer_manager.py:2113),
    so a decode engine waits for ever. Several choices are several attempts (serving/choices.py).
    """
    assert len(prepared) == len(request.images)
    document = dict(request.document)
    document["model"] = model
    if request.max_tokens is None or max_tokens < request.max_tokens:
        document.pop("max_completion_tokens", None)  # it would win over max_tokens, an explicit null too
        document["max_tokens"] = max_tokens
    seed = None
    if request.choices > 1:
        document["n"] = 1
        seed = document.pop("seed", None)
    if request.images:
        document["messages"] = with_urls(request, prepared)
    dumped = dump(document)
    assert dumped.endswith(b"}")
    return EngineBody(dumped[:-1], seed)


def with_urls(request: ChatRequest, urls: Sequence[str]) -> list[Any]:
    """The messages with these URLs for the client's, in slot order; what is not an image is shared with the client's document."""
    messages = list(request.document["messages"])
    for slot, url in zip(request.images, urls, strict=True):
        message = dict(messages[slot.message])
        parts = list(message["content"])
        image_url = {
            key: value for key, value in parts[slot.part]["image_url"].items() if key != "content_hash"
        }
        parts[slot.part] = {**parts[slot.part], "image_url": {**image_url, "url": url}}
        message["content"] = parts
        messages[slot.message] = message
    return messages


class Rendezvous:
    """Fresh ids for the two legs of an attempt; the random source is passed in.

    rid: fixed length, since SGLang aborts by prefix (scheduler.py:5675) and a live duplicate is a 400. Room: non-zero and
    63-bit, since it travels as a signed integer and zero means absent (decode.py:2634).
    """

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def rid(self) -> str:
        return f"chatcmpl-{self._source.getrandbits(128):032x}"  # the decode leg's rid is the answer's id

    def room(self) -> int:
        return self._source.randrange(1, 1 << 63)
