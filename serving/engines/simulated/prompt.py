"""Request bodies: what is asked, or the refusal that SGLang would give."""

import math
from dataclasses import dataclass
from typing import Any

import orjson

from serving.engines.simulated.media import MARKERS, BadMedia, Bomb, Eyes, gate
from serving.engines.simulated.words import Answer, answer, seed_of

BYTES_PER_TOKEN = 3
TEMPLATE_TOKENS = 8
"""Of the chat template around one message."""
DEFAULT_GENERATE_TOKENS = 128
FAKE_BOOTSTRAP_HOST = "2.2.2.2"
"""SGLang's own host name for "no peer": prefill sends nothing, decode waits for nothing (disaggregation/utils.py:53)."""


SCHEMA, GATE = "Bad Request", "gate"
"""Kinds of refusals: by pydantic's schema, by the media gate of /generate; "BadRequestError" is the tokenizer's own."""


class Refused(Exception):
    """400 by default; kind is the body's `type`. inside: the scheduler refused, so a stream tells it under HTTP 200."""

    def __init__(
        self, message: str, kind: str = "BadRequestError", status: int = 400, *, inside: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.status = status
        self.inside = inside


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the request's other half is. room: None when none was named."""

    host: str
    port: int | None
    room: int | None

    @property
    def fake(self) -> bool:
        return self.host == FAKE_BOOTSTRAP_HOST

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Ask:
    """One generation, understood. logprobs: how many alternatives to show, None for none at all."""

    rid: str | None
    model: str
    stream: bool
    include_usage: bool
    prompt_tokens: int
    image_tokens: int
    answer: Answer
    rendezvous: Rendezvous
    samples: int = 1
    logprobs: int | None = None


async def read_chat(body: bytes, eyes: Eyes, context_tokens: int, own_tokens: int = 0) -> Ask:
    """own_tokens: of an answer that nothing else ends; 0: the seed's. Raises Refused."""
    document = _document(body)
    if "messages" not in document:
        raise _invalid("missing", ("body", "messages"), "Field required", document)
    messages = document["messages"]
    if not isinstance(messages, list):
        raise _invalid("list_type", ("body", "messages"), "Input should be a valid list", messages)
    _priority(document)
    text, urls = _messages(messages)
    most = document.get("max_completion_tokens") or document.get("max_tokens")
    top = document.get("top_logprobs") or 0
    return await _ask(
        document, document, eyes, context_tokens, own_tokens,
        text_tokens=TEMPLATE_TOKENS * len(messages) + _tokens(text),
        urls=urls,
        most=most,
        include_usage=bool((document.get("stream_options") or {}).get("include_usage")),
        logprobs=int(top) if document.get("logprobs") else None,
        seed=seed_of(orjson.dumps(messages), str(document.get("seed")).encode()),
    )  # fmt: skip


async def read_generate(body: bytes, eyes: Eyes, context_tokens: int, own_tokens: int = 0) -> Ask:
    """Raises Refused."""
    document = _document(body)
    try:
        urls = gate(document.get("image_data"))
    except BadMedia as error:
        raise Refused(str(error), GATE) from error
    if not isinstance(document.get("rid"), str | None):
        raise _invalid("string_type", ("body", "rid"), "Input should be a valid string", document["rid"])
    _priority(document)
    text, ids = document.get("text"), document.get("input_ids")
    if not isinstance(text, str) and not isinstance(ids, list):
        raise Refused("Either text, input_ids or input_embeds should be provided.")
    tokens = len(ids) if isinstance(ids, list) else _tokens(str(text))
    sampling = document.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise Refused("Expected `sampling_params` to be an object")
    return await _ask(
        document, sampling, eyes, context_tokens, own_tokens,
        text_tokens=tokens,
        urls=urls,
        most=sampling.get("max_new_tokens", DEFAULT_GENERATE_TOKENS),
        include_usage=False,
        logprobs=0 if document.get("return_logprob") else None,
        seed=seed_of(orjson.dumps([text, ids, urls]), str(sampling.get("sampling_seed")).encode()),
    )  # fmt: skip


async def _ask(
    document: dict[str, Any],
    sampling: dict[str, Any],
    eyes: Eyes,
    context_tokens: int,
    own_tokens: int,
    *,
    text_tokens: int,
    urls: list[str],
    most: Any,
    include_usage: bool,
    logprobs: int | None,
    seed: int,
) -> Ask:
    temperature = sampling.get("temperature")
    if temperature is not None and not (
        _number(temperature) and temperature >= 0 and math.isfinite(temperature)
    ):
        raise Refused(f"temperature must be a non-negative finite number, got {_float(temperature)}.")
    try:
        image_tokens = await eyes.tokens(urls)
    except BadMedia as error:
        raise Refused(str(error)) from error
    except Bomb as error:
        raise Refused(str(error), "InternalServerError", 500) from error
    prompt_tokens = text_tokens + image_tokens + MARKERS * len(urls)
    max_tokens = max(1, context_tokens - prompt_tokens - 1) if most is None else int(most)
    if max_tokens < 1:
        raise Refused(f"max_new_tokens must be at least 1, got {max_tokens}.")
    if prompt_tokens + max_tokens > context_tokens:
        raise Refused(
            f"Requested token count exceeds the model's maximum context length of {context_tokens} tokens. "
            f"You requested a total of {prompt_tokens + max_tokens} tokens: {prompt_tokens} tokens from the input "
            f"messages and {max_tokens} tokens for the completion. Please reduce the number of tokens in the input "
            "messages or the completion to fit within the limit."
        )
    stop = sampling.get("stop") or ()
    words = (stop,) if isinstance(stop, str) else tuple(str(one) for one in stop)
    return Ask(
        rid=document.get("rid"),
        model=str(document.get("model") or "default"),
        stream=bool(document.get("stream")),
        include_usage=include_usage,
        prompt_tokens=prompt_tokens,
        image_tokens=image_tokens,
        answer=answer(
            seed, max_tokens, words, ignore_eos=bool(sampling.get("ignore_eos")), own_tokens=own_tokens
        ),
        rendezvous=Rendezvous(
            str(document.get("bootstrap_host") or ""),
            document.get("bootstrap_port"),
            document.get("bootstrap_room"),
        ),
        samples=int(sampling.get("n") or 1),
        logprobs=logprobs,
    )


def _priority(document: dict[str, Any]) -> None:
    """Taken and left alone, as an engine does that was started without --enable-priority-scheduling. Raises Refused."""
    given = document.get("priority")
    if isinstance(given, str):
        what = "Input should be a valid integer, unable to parse string as an integer"
        raise _invalid("int_parsing", ("body", "priority"), what, given)
    if not isinstance(given, int | None):
        raise _invalid("int_type", ("body", "priority"), "Input should be a valid integer", given)


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _invalid("json_invalid", ("body", 0), "JSON decode error", str(error)) from error
    if not isinstance(document, dict):
        raise _invalid("model_attributes_type", ("body",), "Input should be a valid dictionary", document)
    return document


def _messages(messages: list[Any]) -> tuple[str, list[str]]:
    texts: list[str] = []
    urls: list[str] = []
    for index, message in enumerate(messages):
        where = ("body", "messages", index)
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _invalid("missing", (*where, "role"), "Field required", message)
        content = message.get("content")
        for part in content if isinstance(content, list) else [{"type": "text", "text": content or ""}]:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "text":
                texts.append(str(part.get("text")))
            elif kind == "image_url":
                target = part.get("image_url")
                if not isinstance(target, dict) or not isinstance(target.get("url"), str):
                    raise _invalid("missing", (*where, "content", "image_url", "url"), "Field required", part)
                urls.append(target["url"])
            else:
                raise _invalid("literal_error", (*where, "content", "type"), "Input should be 'text' or 'image_url'", kind)  # fmt: skip
    return "".join(texts), urls


def _invalid(kind: str, where: tuple[str | int, ...], what: str, given: Any) -> Refused:
    """As SGLang words pydantic's errors: it quotes the whole input."""
    detail = f"{{'type': {kind!r}, 'loc': {where!r}, 'msg': {what!r}, 'input': {given!r}}}"
    return Refused(f"1 validation error:\n  {detail}", SCHEMA)


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(value: Any) -> Any:
    return float(value) if _number(value) else value
