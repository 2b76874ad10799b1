"""What an engine's answer says: tokens, ends and failures in chat-completions events, and refusals under any status.

SGLang tells an abort in mid-stream under HTTP 200, as an error event or as finish_reason "abort"
(serving_chat.py:2561, http_server.py:949), so a status alone proves nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson

from toolkit.core.errors import Busy, EngineFailed, InvalidRequest, ToolkitError

RETRY_AFTER_S = 1.0

TRANSFER_FAILED = "transfer failed"
ABORTED = "AbortReq"
"""SGLang's words when a KV cache did not arrive (prefill.py:1287, decode.py:2864), and when an abort is why."""

COUNTED = ("prompt_tokens", "completion_tokens")
MOST_TOKENS = 2**40
"""Far over what any engine can count in one answer, and exact in every sum, metric and reader of the journal."""


class TransferFailed(EngineFailed):
    """The KV cache did not get from prefill to decode: the fault of the two together, whichever told it."""


class Kind(Enum):
    """What one event means for the request's timeline."""

    PREAMBLE = "preamble"  # nothing a reader would see: a role, an empty delta, a comment
    TOKEN = "token"  # noqa: S105 - a language model's token
    FINISH = "finish"
    AFTER = "after"  # usage and the like, once the text has ended
    DONE = "done"


@dataclass(slots=True)
class StreamReader:
    """Follows one event stream with one choice. Mutated by `read`."""

    engine: str
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    token_events: int = 0
    done: bool = False

    def read(self, data: bytes) -> Kind:
        """Take one event's data. Raises the typed error that an error or abort event stands for."""
        if not data:
            return Kind.PREAMBLE
        if data == b"[DONE]":
            self.done = True
            return Kind.DONE
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise EngineFailed(f"{self.engine} sent an event that is not JSON.") from error
        if not isinstance(document, dict):
            raise EngineFailed(f"{self.engine} sent an event that is not an object.")
        if document.get("error"):
            raise refusal(self.engine, _status_of(document), document)
        self.usage = usage_of(self.engine, document) or self.usage
        kind = Kind.AFTER if self.complete else Kind.PREAMBLE
        for choice in choices_of(self.engine, document):
            if has_content(choice.get("delta") or {}):
                self.token_events += 1
                kind = Kind.TOKEN
            reason = choice.get("finish_reason")
            if reason is not None:
                if reason == "abort":
                    raise EngineFailed(f"{self.engine} aborted the request.")
                self.finish_reason = reason
                if kind is not Kind.TOKEN:
                    kind = Kind.FINISH
        return kind

    @property
    def complete(self) -> bool:
        """Whether the choice has its finish_reason."""
        return self.finish_reason is not None

    def end(self) -> None:
        """The stream has ended. Raises EngineFailed when it ended too early."""
        if not self.complete:
            raise EngineFailed(
                f"{self.engine} ended the stream without a finish_reason after {self.token_events} token events."
            )
        if not self.done:
            raise EngineFailed(f"{self.engine} ended the stream without [DONE].")


def read_whole(engine: str, body: bytes) -> dict[str, Any]:
    """A non-streamed answer with one finished choice. Raises EngineFailed when it is no whole answer."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise EngineFailed(f"{engine} answered with something that is not JSON.") from error
    choices = choices_of(engine, document) if isinstance(document, dict) else []
    if not choices:
        raise EngineFailed(f"{engine} answered with something that is not a chat completion.")
    reason = choices[0].get("finish_reason")
    if reason in (None, "abort"):
        raise EngineFailed(f"{engine} ended the answer early (finish_reason {reason}).")
    usage_of(engine, document)
    return document  # type: ignore[no-any-return]


def choices_of(engine: str, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The choices of an event or an answer, none where it has none. Raises EngineFailed where they are not of the protocol's types."""
    choices = document.get("choices") or []
    if not isinstance(choices, list) or not all(map(_is_choice, choices)):
        raise EngineFailed(f"{engine} sent choices that are not those of a chat completion.")
    return choices


def _is_choice(choice: object) -> bool:
    return (
        isinstance(choice, dict)
        and isinstance(choice.get("delta"), dict | None)
        and isinstance(choice.get("finish_reason"), str | None)
    )


def usage_of(engine: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What an event or an answer says was used, empty where it says nothing. Raises EngineFailed for counts that cannot be."""
    usage = document.get("usage") or {}
    if not isinstance(usage, dict) or not all(_is_count(usage.get(name)) for name in COUNTED):
        raise EngineFailed(f"{engine} told a usage that cannot be: {_shown(usage)[:100]}")
    return usage


def _is_count(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value < MOST_TOKENS)


def has_content(delta: Mapping[str, Any]) -> bool:
    """Whether a delta carries something generated; a role alone is no token."""
    return bool(
        delta.get("content")
        or delta.get("reasoning_content")
        or delta.get("tool_calls")
        or delta.get("function_call")
    )


def refusal(engine: str, status: int, document: object) -> ToolkitError:
    """The typed error for an engine's refusal: 4xx is the caller's, 429 and 503 are backpressure, the rest is a failure.

    Its words reach the client where they are about the request; else they are the operator's.
    """
    message = _message_of(document)
    if status in (429, 503):
        return Busy(
            "The engines have no room for this request now.",
            code="engine_busy",
            retry_after_s=RETRY_AFTER_S,
            internal=f"{engine} has no room: {message}",
        )
    if 400 <= status < 500 and status not in (408, 499):
        return InvalidRequest(f"The engine refused the request: {message}", code="engine_rejected")
    internal = f"{engine} failed ({status}): {message}"
    if TRANSFER_FAILED in message and ABORTED not in message:
        return TransferFailed("The request's state did not get from prefill to decode.", internal=internal)
    return EngineFailed("An engine failed on this request.", internal=internal)


def _status_of(document: Mapping[str, Any]) -> int:
    error = document["error"]
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _message_of(document: object) -> str:
    found: object = document
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    text = found if isinstance(found, str) else _shown(found)
    return text.partition("\n\n  File")[0][
        :500
    ]  # SGLang's validation text goes on with its own file paths and the whole input


def _shown(value: object) -> str:
    try:
        return repr(value)
    except RecursionError:
        return "something nested too deeply to be shown"
