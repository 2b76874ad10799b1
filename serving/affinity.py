"""Which prefill has seen this before: consistent hashing with bounded loads. Pure.

SGLang's prefill keeps the KV of prompts by their beginnings and the embeddings of images, so what comes again is cheap where
it was. A request with a key therefore goes to the first instance in the key's own order that is not too full:

    order     by weight / -ln(u), u in (0, 1) hashed from key and name, the highest first
              (rendezvous hashing: Thaler and Ravishankar 1998, by weight)
    too full  load > bound x (mean load + its own), for a key that was seen lately;  load > mean load, for a new one
              load = outstanding tokens / weight (instances.py)
              (consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam 2016; for work of unequal size)

A new key has nothing to gain yet: it waits behind nobody for the sake of those that may follow it.

An instance that goes takes its own keys along and moves no other; one that comes takes its part of each other's. There is
always one that is not too full, the least loaded. Those that spill from one instance have orders of their own, so they do
not all fall on the same next one, as on a ring (Chen, Coleman, Shrivastava 2021).
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from math import log

from serving.chat import ChatRequest
from serving.instances import Instance

LEAST_TOKENS = 512
"""Text below this is not worth a key: at 40 us per token (a 7B on an H100) it is prefilled in 20 ms."""

HEAD_BYTES = 2048
"""Of the messages' text, what two requests must share to have one key: some 500 tokens. OpenAI routes by the first 256."""

MOST_KEYS = 16_384
"""Keys remembered as seen: more than any prefill has room for; 2 MB."""


def chosen(
    key: bytes, instances: Sequence[Instance], tokens: int, bound: float, seen: bool
) -> tuple[Instance, bool]:
    """The instance for a request of so many tokens, and whether it is the key's first. bound: at least 1."""
    mean = sum(one.tokens for one in instances) / sum(one.weight for one in instances)
    most = bound * (mean + tokens) if seen else mean
    order = sorted(instances, key=lambda one: _place(key, one), reverse=True)
    roomy = (one for one in order if one.tokens / one.weight <= most)
    best = next(roomy, None) or min(order, key=lambda one: one.tokens / one.weight)
    return best, best is order[0]


class Seen:
    """The keys that came last, so many."""

    def __init__(self, most: int = MOST_KEYS) -> None:
        self._most = most
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def again(self, key: bytes) -> bool:
        """Whether it had come before; it has from now on."""
        known = key in self._keys
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)
        return known


def key_of(request: ChatRequest, image_digests: Sequence[bytes], text_tokens: int) -> bytes | None:
    """What is likely to be cached, as a key: the client's own prompt_cache_key, else its first image, else the beginning of a
    long text. None where nothing would be gained."""
    own = request.document.get("prompt_cache_key")
    if isinstance(own, str) and own:
        return _digest(b"own", own.encode("utf-8", "surrogatepass"))
    if image_digests:
        return _digest(b"image", image_digests[0])
    if text_tokens < LEAST_TOKENS:
        return None
    return _digest(b"text", _head(request.document.get("messages")))


def _head(messages: object) -> bytes:
    """The first bytes of the messages' roles and texts."""
    head = bytearray()
    for piece in _pieces(messages):
        head += piece[:HEAD_BYTES].encode("utf-8", "surrogatepass") + b"\0"
        if len(head) >= HEAD_BYTES:
            break
    return bytes(head[:HEAD_BYTES])


def _pieces(messages: object) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        yield str(message.get("role"))
        content = message.get("content")
        for part in content if isinstance(content, list) else [{"text": content}]:
            if isinstance(text := part.get("text"), str):
                yield text


def _place(key: bytes, one: Instance) -> float:
    number = int.from_bytes(_digest(key, one.endpoint.name.encode()), "big") >> 12
    return one.weight / -log((number + 0.5) / (1 << 52))  # a float has 53 bits: never 0 nor 1


def _digest(kind: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=8, key=kind).digest()
