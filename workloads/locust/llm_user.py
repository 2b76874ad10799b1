"""A plain locust user for people's own locustfiles: a streamed chat completion, timed where its tokens are read.

locust's `iter_lines` reads 1,024 bytes before it gives a line, so that the first token of a slow stream is seen some
tokens late (4 ITL at 228 bytes a token). This user reads line by line as bytes arrive. It is a closed loop like every
locust user; `toolkit bench --web` is the open one. Importing this module imports locust, and so gevent's patches.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from locust import FastHttpUser
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS

from toolkit.core.http.errors import ProtocolViolation
from toolkit.core.slo import gaps
from workloads.answer import StreamedAnswer, error_ending
from workloads.locust.entries import CHAT, TTFT, RequestFailed

ITL = "ITL"


@dataclass(frozen=True, slots=True)
class Chat:
    """One answer, by its end. code: None when it ended well. token_times_s: after the send."""

    status: int
    code: str | None
    message: str | None
    elapsed_s: float
    token_times_s: tuple[float, ...]
    usage: Mapping[str, Any]

    @property
    def ttft_s(self) -> float | None:
        return self.token_times_s[0] if self.token_times_s else None

    @property
    def itl_s(self) -> tuple[float, ...]:
        return gaps(self.token_times_s)


class LlmUser(FastHttpUser):
    """`chat` in a task of a subclass; `host` is the server's base URL, without /v1."""

    abstract = True
    path = "/v1/chat/completions"
    model = ""  # needed by most servers
    api_key = ""

    def chat(self, messages: str | Sequence[Mapping[str, Any]], name: str = "chat", **fields: Any) -> Chat:
        """Ask, read the stream to its end, and tell locust: entries CHAT, TTFT and ITL (one per gap) under `name`.

        messages: a user's text, or OpenAI messages. name: the class of the request. fields: further ones of the body.
        Does not raise for what a server does: it is an entry's failure, and the result's `code`.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = orjson.dumps(
            {
                "model": self.model,
                "messages": messages,
                "stream": True,
                "stream_options": {"include_usage": True},
                **fields,
            }
        )
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        chat = self._ask(body, headers)
        self._tell(chat, name)
        return chat

    def _ask(self, body: bytes, headers: dict[str, str]) -> Chat:
        answer, began = StreamedAnswer(), time.perf_counter()
        status, code, message = 0, None, None
        # catch_response: locust tells nothing by itself; the time it would tell ends with the head.
        response = self.client.request(
            "POST", self.path, data=body.decode(), headers=headers, stream=True, catch_response=True
        )
        raw = getattr(response, "_response", None)
        try:
            status = response.status_code
            if raw is None:
                code, message = "connect_failed", str(getattr(response, "error", None))
            elif status != 200:
                ending = error_ending(_json(response.content), f"http_{status}")
                code, message = ending.code, ending.message
            else:
                self._read(raw, answer)
                ending = answer.ending()
                code, message = ending.code, ending.message
        except (*FAILURE_EXCEPTIONS, ProtocolViolation) as error:
            code, message = "truncated", f"{type(error).__name__}: {error}"
        finally:
            if raw is not None:
                raw.release()  # back to the pool when it was read to its end, else closed
        return Chat(
            status=status,
            code=code,
            message=message,
            elapsed_s=time.perf_counter() - began,
            token_times_s=tuple(at - began for at in answer.token_times),
            usage=answer.usage,
        )

    def _read(self, raw: Any, answer: StreamedAnswer) -> None:
        while line := raw.readline(b"\n"):  # to the end and not to [DONE]: the connection is used again
            if line.startswith(b"data:"):
                answer.feed(bytes(line).rstrip(b"\r\n") + b"\n\n", time.perf_counter())

    def _tell(self, chat: Chat, name: str) -> None:
        failure = None if chat.code is None else RequestFailed(chat.code)  # few texts: locust counts by them
        self._fire(CHAT, name, chat.elapsed_s, failure)
        if chat.ttft_s is not None:
            self._fire(TTFT, name, chat.ttft_s)
        for gap_s in chat.itl_s:
            self._fire(ITL, name, gap_s)

    def _fire(self, kind: str, name: str, seconds: float, failure: Exception | None = None) -> None:
        self.environment.events.request.fire(
            request_type=kind,
            name=name,
            response_time=seconds * 1e3,
            response_length=0,
            exception=failure,
            context=self.context(),
        )


def _json(body: bytes | None) -> Any:
    try:
        return orjson.loads(body or b"null")
    except ValueError:
        return None
