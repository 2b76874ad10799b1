"""The chat-completions body: what the gateway must know of it, and what the engines receive.

Everything the gateway does not own reaches the engine as it came: sampling, stop, tools, response_format, seed, logprobs,
stream_options. What it owns: the images (replaced by prepared ones), an absent max_tokens (written in), and the fields of
the PD rendezvous (rid, bootstrap_*), which a client may not set.
"""

import gc
import reprlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from serving.lifted import Lifted, Light, lighten
from toolkit.core.errors import InvalidRequest, TooLarge

MAX_CHOICES = 16
MAX_VALUES = 400_000
"""Brackets, commas and colons of a body, in texts too: each may be a value that takes 100 bytes and 100 ns to make."""

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60

OWNED_FIELDS = frozenset(
    {
        "data_parallel_rank",
        "rid",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "routed_dp_rank",
        "disagg_prefill_dp_rank",
    }
)
"""Fields of the rendezvous between the legs; a client that sets one would break it."""

REFUSED_FIELDS: Mapping[str, str] = {
    "input_ids": "SGLang 0.5.23 drops the images of a chat request that carries it (serving_chat.py:1947)"
}

INT32 = (1 << 31) - 1

BOUNDS: Mapping[str, tuple[int, int]] = {
    "top_logprobs": (0, 20),  # OpenAI's; above 128 SGLang's scheduler dies (decode metadata buffer)
    "top_k": (-1, INT32),  # SGLang holds it as int32
    "min_tokens": (0, INT32),
    "seed": (-(1 << 63), (1 << 63) - 1 - MAX_CHOICES),
}
"""Whole numbers that kill SGLang 0.5.23's scheduler when they pass these: one request must not end everybody's."""

UNSAFE_FIELDS: Mapping[str, str] = {
    "stop_regex": "SGLang matches it in its scheduler after every token, so one pattern can stop every request",
}
"""Fields that only an operator may open (gateway.allowed_fields)."""

MEDIA_PARTS = frozenset({"video_url", "video", "audio_url", "input_audio", "audio", "file"})


@dataclass(frozen=True, slots=True)
class ImageSlot:
    """Where one image stands: messages[message].content[part]. A long data URI is left in the body it came in."""

    message: int
    part: int
    url: str | Lifted

    @property
    def param(self) -> str:
        return f"messages[{self.message}].content[{self.part}].image_url.url"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A parsed request. `document` is the client's JSON object, never changed in place; long data URIs are not in it."""

    document: dict[str, Any]
    model: str
    stream: bool
    choices: int
    max_tokens: int | None
    text_bytes: int
    images: tuple[ImageSlot, ...]

    @property
    def held_bytes(self) -> int:
        """About the memory that it keeps: its texts and its images as they came."""
        return self.text_bytes + sum(len(slot.url) for slot in self.images)


def parse(
    body: bytes | bytearray | Light,
    vocabulary: int | None = None,
    allowed_fields: Collection[str] = (),
    max_text_bytes: int = 1 << 62,
) -> ChatRequest:
    """Raises InvalidRequest (invalid_json, invalid_request, unsupported_media) naming the field, and TooLarge.

    vocabulary: the model's size, where known; a token id beyond it kills SGLang's scheduler. max_text_bytes: most that
    the body may have besides the long data URIs of its images.
    """
    light = body if isinstance(body, Light) else lighten(body)
    _check_text(light, max_text_bytes)
    document = _object(light.text)
    if light.lifted and _strings(document, set(light.names)) != len(light.lifted):
        # Some are not where images are: in a text, in a tool's argument.
        light = Light(light.body, light.body, (), ())
        _check_text(light, max_text_bytes)
        document = _object(light.body)
    lifted = dict(zip(light.names, light.lifted, strict=True))
    for name in document.keys() & OWNED_FIELDS:
        raise InvalidRequest(f"{name!r} is set by the gateway; leave it out.", param=name)
    for name in document.keys() & REFUSED_FIELDS.keys():
        raise InvalidRequest(f"{name!r} is refused: {REFUSED_FIELDS[name]}.", param=name)
    for name in document.keys() & UNSAFE_FIELDS.keys() - set(allowed_fields):
        raise InvalidRequest(f"{name!r} is not open here: {UNSAFE_FIELDS[name]}.", param=name)
    for name, (least, most) in BOUNDS.items():
        _whole(document, name, least, most)
    _token_ids(document.get("stop_token_ids"), vocabulary or INT32)
    text_bytes, images = _read_messages(document.get("messages"), lifted)
    for tool in ("tools", "functions", "response_format"):
        if document.get(tool):
            text_bytes += len(dump(document[tool]))
    return ChatRequest(
        document=document,
        model=_optional(document, "model", str, ""),
        stream=_optional(document, "stream", bool, False),
        choices=_positive(document, "n", MAX_CHOICES) or 1,
        max_tokens=_positive(document, "max_completion_tokens", 1 << 31)
        or _positive(document, "max_tokens", 1 << 31),
        text_bytes=text_bytes,
        images=images,
    )


def _optional(document: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = document.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise InvalidRequest(f"{name!r} must be a {kind.__name__}, not {_shown(value)}.", param=name)
    return value


def _whole(document: Mapping[str, Any], name: str, least: int, most: int) -> None:
    value = document.get(name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(
            f"{name!r} must be a whole number from {least} to {most}, not {_shown(value)}.", param=name
        )


def _token_ids(ids: object, vocabulary: int) -> None:
    if ids is None:
        return
    whole = isinstance(ids, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in ids)
    if not whole or not all(0 <= one < vocabulary for one in ids):  # type: ignore[attr-defined]
        raise InvalidRequest(
            f"'stop_token_ids' must be a list of token ids from 0 to {vocabulary - 1}.",
            param="stop_token_ids",
        )


def dump(value: object) -> bytes:
    """JSON text. Raises InvalidRequest for what is nested deeper than it can be written again."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise InvalidRequest("The body is nested too deeply.", code="invalid_json") from error


def _positive(document: Mapping[str, Any], name: str, most: int) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidRequest(
            f"{name!r} must be a whole number from 1 to {most}, not {_shown(value)}.", param=name
        )
    return value


def _check_text(light: Light, most: int) -> None:
    if len(light.text) > most:
        raise TooLarge(f"The body has {len(light.text)} bytes besides its images; the limit is {most}.")
    if light.values > MAX_VALUES:
        raise TooLarge(
            f"The body has {light.values} brackets, commas and colons besides its images; the limit is {MAX_VALUES}."
        )


def _shown(value: object) -> str:
    """A value for a message, short however large or deep it is."""
    return f"{_SHORT.repr(value):.60}"


def _object(body: bytes | bytearray) -> dict[str, Any]:
    collecting = gc.isenabled()
    gc.disable()  # it would look through all that is new, again and again: four times the time of a large body
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.", code="invalid_json") from error
    finally:
        if collecting:
            gc.enable()
    if not isinstance(document, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_json")
    return document


def _strings(document: Mapping[str, Any], names: Collection[str]) -> int:
    """How many of the names are the URL of an image part."""
    found = 0
    messages = document.get("messages")
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            target = part.get("image_url") if isinstance(part, dict) else None
            found += (
                isinstance(target, dict) and target.get("url") in names and part.get("type") == "image_url"
            )
    return found


def _read_messages(messages: object, lifted: Mapping[str, Lifted]) -> tuple[int, tuple[ImageSlot, ...]]:
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("'messages' must be a list with at least one message.", param="messages")
    text_bytes = 0
    images: list[ImageSlot] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidRequest(f"{where} must be an object with a 'role'.", param=where)
        content = message.get("content")
        if isinstance(content, str):
            text_bytes += len(content.encode("utf-8", "surrogatepass"))
        elif isinstance(content, list):
            for number, part in enumerate(content):
                text_bytes += _read_part(part, index, number, images, lifted)
        elif content is not None:
            raise InvalidRequest(
                f"{where}.content must be a string or a list of parts.", param=f"{where}.content"
            )
        if message.get("tool_calls"):
            text_bytes += len(dump(message["tool_calls"]))
    return text_bytes, tuple(images)


def _read_part(
    part: object, message: int, number: int, images: list[ImageSlot], lifted: Mapping[str, Lifted]
) -> int:
    where = f"messages[{message}].content[{number}]"
    if not isinstance(part, dict):
        raise InvalidRequest(f"{where} must be an object with a 'type'.", param=where)
    kind = part.get("type")
    if kind == "text":
        if not isinstance(part.get("text"), str):
            raise InvalidRequest(f"{where}.text must be a string.", param=f"{where}.text")
        return len(part["text"].encode("utf-8", "surrogatepass"))
    if kind == "image_url":
        target = part.get("image_url")
        if not isinstance(target, dict) or not isinstance(target.get("url"), str):
            raise InvalidRequest(
                f"{where}.image_url must be an object with a 'url' string.", param=f"{where}.image_url"
            )
        url = target["url"]
        images.append(ImageSlot(message, number, lifted.get(url, url)))
        return 0
    if isinstance(kind, str) and kind in MEDIA_PARTS:
        raise InvalidRequest(
            f"{where}: {kind!r} is not served yet; send text and image_url parts.",
            code="unsupported_media",
            param=where,
        )
    raise InvalidRequest(
        f"{where}.type must be 'text' or 'image_url', not {_shown(kind)}.", param=f"{where}.type"
    )
