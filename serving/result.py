"""One answered request as a document for the store: what was asked, what was answered, how it went.

    {"request_id": ..., "request": {the body; images as "sha256:..."}, "answer": {"choices": [...]}, "sample": {...}}

Image URLs are left out too: presigned ones are credentials. What an answer said is collected as the pieces that were sent, by
reference, and only read on a thread.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from serving.chat import ChatRequest
from serving.engine_body import with_urls
from toolkit.core.http.sse import EventSplitter
from toolkit.core.sample import Sample

MOST_SAID_BYTES = 8_000_000
"""Of one answer, as sent: some 30,000 tokens of a stream. The rest is left out, and `truncated` says so."""

REST_BYTES = 3000
"""About what a sample and the names around it take."""


class Result:
    """What was asked, and what was sent of the answer: an event stream's pieces, or one whole JSON body."""

    def __init__(self, request: ChatRequest, digests: Sequence[bytes]) -> None:
        """digests: SHA-256 of each image. Holds the request's texts, none of its images."""
        names = [f"sha256:{digest.hex()}" for digest in digests]
        self._asked = {**request.document, "messages": with_urls(request, names)}
        self._asked_bytes = request.text_bytes
        self._pieces: list[bytes] = []
        self._said_bytes = 0
        self._truncated = False

    @property
    def size(self) -> int:
        """About how many bytes the document will have."""
        return self._asked_bytes + self._said_bytes + REST_BYTES

    def add(self, piece: bytes) -> None:
        """Whole events, or the whole body."""
        self._truncated = self._truncated or self._said_bytes + len(piece) > MOST_SAID_BYTES
        if not self._truncated:
            self._pieces.append(piece)
            self._said_bytes += len(piece)

    def document(self, sample: Sample) -> bytes:
        """As JSON. Takes milliseconds: for a thread."""
        return orjson.dumps(
            {
                "request_id": sample.request_id,
                "request": self._asked,
                "answer": {"choices": self._choices(sample.stream), "truncated": self._truncated},
                "sample": sample.to_dict(),
            }
        )

    def _choices(self, stream: bool) -> list[dict[str, Any]]:
        """As a whole answer has them: index, message, finish_reason."""
        if not stream:
            body = orjson.loads(b"".join(self._pieces) or b'{"choices": []}')
            return [
                {key: choice.get(key) for key in ("index", "message", "finish_reason")}
                for choice in body["choices"]
            ]
        choices: dict[int, dict[str, Any]] = {}
        splitter = EventSplitter()
        for piece in self._pieces:
            for event in splitter.feed(piece):
                if event.data and event.data != b"[DONE]":
                    for part in orjson.loads(event.data).get("choices") or ():
                        index = part.get("index", 0)
                        choice = choices.setdefault(
                            index, {"index": index, "message": {}, "finish_reason": None}
                        )
                        _grow(choice["message"], part.get("delta") or {})
                        choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
        return [choices[index] for index in sorted(choices)]


def _grow(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Texts are joined, tool calls by their index, all else is what came last."""
    for key, value in delta.items():
        if key == "tool_calls":
            calls: list[dict[str, Any]] = message.setdefault(key, [])
            for part in value or ():
                call = next((one for one in calls if one.get("index") == part.get("index")), None)
                if call is None:
                    calls.append(call := {"index": part.get("index")})
                _grow(call, {name: inner for name, inner in part.items() if name not in ("index", "type")})
                if "type" in part:
                    call["type"] = part["type"]
        elif isinstance(value, dict):
            _grow(message.setdefault(key, {}), value)
        elif isinstance(value, str) and key not in ("role", "id"):
            message[key] = (message.get(key) or "") + value
        elif value is not None:
            message[key] = value
