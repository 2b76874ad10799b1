"""The bodies of answers, byte for byte in SGLang 0.5.23's shape (captured from the real pair)."""

from typing import Any

import orjson

from serving.engines.simulated.prompt import GATE, SCHEMA, Ask, Refused
from serving.engines.simulated.words import logprob, piece, token_id

SSE_DONE = b"data: [DONE]\n\n"
FIRST_ERROR_NAMES = {400: "BAD_REQUEST", 500: "INTERNAL_SERVER_ERROR", 503: "SERVICE_UNAVAILABLE"}


def sse(document: object) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"


def refusal(message: str, kind: str, status: int) -> dict[str, Any]:
    """The body of a 4xx or 5xx."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def stream_failure(message: str, status: int) -> bytes:
    """A failure told under HTTP 200."""
    name = FIRST_ERROR_NAMES.get(status, "INTERNAL_SERVER_ERROR")
    return sse({"error": refusal(message, name, status)})


def chat_refusal(error: Refused) -> dict[str, Any]:
    """The body of a 4xx or 5xx of chat-completions."""
    return refusal(error.message, error.kind, error.status)


def generate_refusal(error: Refused) -> dict[str, Any]:
    """The body of a 4xx or 5xx of /generate: each of its three gates has its own shape."""
    if error.kind == GATE:
        return {"error": error.message}
    if error.kind == SCHEMA:
        return refusal(error.message, error.kind, error.status)
    return {"error": {"message": error.message}}


def generate_fault(message: str) -> bytes:
    """What a /generate stream says to a request that the tokenizer refuses (http_server.py:949)."""
    return sse(
        {"error": {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}}
    )


def usage(ask: Ask, made: int) -> dict[str, Any]:
    details = {"cached_tokens": 0, "image_tokens": ask.image_tokens} if ask.image_tokens else None
    return {
        "prompt_tokens": ask.prompt_tokens,
        "total_tokens": ask.prompt_tokens + made,
        "completion_tokens": made,
        "prompt_tokens_details": details,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


class ChatWriter:
    """The pieces of one chat answer. rid: the answer's id; created: Unix seconds."""

    def __init__(self, ask: Ask, rid: str, created: int) -> None:
        self._ask = ask
        self._rid = rid
        self._created = created

    def role(self, index: int = 0) -> bytes:
        return self._chunk(index, {"reasoning_content": None, "role": "assistant", "content": ""})

    def content(self, text: str, number: int, index: int = 0) -> bytes:
        """The text of token `number` (from 1)."""
        shown = _logprobs(self._ask, number - 1, number) if self._ask.logprobs is not None else None
        return self._chunk(index, {"reasoning_content": None, "content": text}, logprobs=shown)

    def finish(self, reason: str, index: int = 0) -> bytes:
        matched = self._ask.answer.matched_stop if reason == "stop" else None
        return self._chunk(index, {"reasoning_content": None}, reason=reason, matched=matched)

    def usage(self, made: int) -> bytes:
        return sse({**self._head("chat.completion.chunk"), "choices": [], "usage": usage(self._ask, made)})

    def whole(self, reason: str, made: int, samples: int = 1) -> dict[str, Any]:
        """A non-streamed answer of `made` tokens."""
        answer = self._ask.answer
        choice = {
            "message": {"role": "assistant", "content": answer.shown(made), "reasoning_content": None},
            "logprobs": _logprobs(self._ask, 0, made) if self._ask.logprobs is not None else None,
            "finish_reason": reason,
            "matched_stop": answer.matched_stop if reason == "stop" else None,
        }
        return {
            **self._head("chat.completion"),
            "choices": [{"index": index, **choice} for index in range(samples)],
            "usage": usage(self._ask, made * samples),
            "metadata": {
                "weight_version": "default",
                "weight_versions": [{"version": "default", "start": 0, "end": made}],
            },
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._rid, "object": kind, "created": self._created, "model": self._ask.model}

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        reason: str | None = None,
        matched: str | int | None = None,
        logprobs: dict[str, Any] | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": reason,
            "matched_stop": matched,
        }
        return sse({**self._head("chat.completion.chunk"), "choices": [choice]})


def generated(ask: Ask, rid: str, made: int, finish: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
    """A /generate answer after `made` tokens; streams send the text so far, each time."""
    numbers = range(made)
    meta: dict[str, Any] = {
        "id": rid,
        "finish_reason": finish,
        "prompt_tokens": ask.prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
        "completion_tokens": made,
        "cached_tokens": 0,
        "e2e_latency": seconds,
    }
    if ask.logprobs is not None:
        seed = ask.answer.seed
        meta["output_token_logprobs"] = [
            [logprob(seed, one), token_id(piece(seed, one)), None] for one in numbers
        ]
    ids = [token_id(piece(ask.answer.seed, number)) for number in numbers]
    return {"text": ask.answer.shown(made), "output_ids": ids, "meta_info": meta}


def finish_of(ask: Ask, reason: str, made: int) -> dict[str, Any]:
    """finish_reason as /generate tells it."""
    if reason == "length":
        return {"type": "length", "length": made}
    if reason == "abort":
        return {"type": "abort", "message": "Abort in waiting queue" if made == 0 else "Aborted"}
    return {"type": "stop", "matched": ask.answer.matched_stop}


def _logprobs(ask: Ask, first: int, end: int) -> dict[str, Any]:
    return {"content": [_logprob(ask, number) for number in range(first, end)]}


def _logprob(ask: Ask, number: int) -> dict[str, Any]:
    seed, shown = ask.answer.seed, ask.logprobs or 0
    own = _entry(piece(seed, number), logprob(seed, number))
    others = [_entry(piece(seed + rank, number), logprob(seed, number) - rank) for rank in range(1, shown)]
    return {**own, "top_logprobs": [own, *others][:shown]}


def _entry(text: str, value: float) -> dict[str, Any]:
    return {"token": text, "bytes": list(text.encode()), "logprob": value}
