"""The error tree, by what the caller can do about it.

    ToolkitError
    +-- InvalidRequest         4xx  fix the request
    |   +-- TooLarge           413  send less
    |   +-- Unauthorized       401  send a key
    |   +-- NotFound           404  another path or model
    |   +-- Conflict           409  something else is so now; look, then force it or leave it
    +-- Busy                   429  try again after `retry_after_s`
    +-- OutOfTime              504  the TTFT budget was spent; `hop` says where
    +-- EngineFailed           502  the engine broke; a new request may succeed
    |   +-- EngineUnavailable  503  no engine is ready right now
    +-- ClientGone             499  nobody is listening any more
    +-- EnvironmentFault       exit code 3: this machine lacks something
    +-- UsageFault             exit code 2: the command line or a file is wrong

Every error that a client can see has a stable `code` (docs/errors.md is generated from `CODES`).
"""

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Code:
    """One stable error code of the HTTP API.

    status: HTTP status. kind: the OpenAI `error.type`. retryable: the same request may succeed later.
    action: what the caller should do, in one sentence.
    """

    code: str
    status: int
    kind: str
    retryable: bool
    action: str


def _table(*codes: Code) -> dict[str, Code]:
    table = {code.code: code for code in codes}
    assert len(table) == len(codes), "an error code is defined twice"
    return table


_BAD, _BUSY, _SERVER = "invalid_request_error", "rate_limit_error", "server_error"

CODES: dict[str, Code] = _table(
    Code("invalid_request", 400, _BAD, False, "Correct the request: the message names the field."),
    Code("invalid_json", 400, _BAD, False, "Send one JSON object as the body."),
    Code("unsupported_media", 400, _BAD, False, "Send text and image_url parts only; video and audio are not served yet."),
    Code("unauthorized", 401, "authentication_error", False, "Send `Authorization: Bearer KEY` with a key of this gateway."),
    Code("not_found", 404, _BAD, False, "Use a path listed in the README, and a model from GET /v1/models."),
    Code("method_not_allowed", 405, _BAD, False, "Use the method that the message names."),
    Code("body_too_large", 413, _BAD, False, "Send a smaller body, or images by URL."),
    Code("body_timeout", 408, _BAD, True, "Send the whole body within the upload limit."),
    Code("headers_too_large", 431, _BAD, False, "Send fewer or shorter headers."),
    Code("image_too_large", 413, _BAD, False, "Send an image under the byte, pixel and side limits named in the message."),
    Code("image_invalid", 400, _BAD, False, "Send a complete JPEG, PNG, WebP, GIF or AVIF image."),
    Code("image_too_costly", 413, _BAD, False, "Send the image in a plainer form (baseline JPEG, PNG), or a smaller one."),
    Code("image_process_lost", 503, _SERVER, True, "Send again: the process that decoded the image was ended from outside, twice."),
    Code("image_url_blocked", 400, _BAD, False, "Use an http(s) URL of a public host, or a data: URI; the operator can allow others as host:port in access.allowed_hosts, and may have set access.only_hosts or access.blocked_hosts."),
    Code("image_fetch_failed", 400, _BAD, True, "Check that the URL answers 200 with the image within the time limit."),
    Code("image_host_failing", 400, _BAD, True, "Wait for Retry-After seconds: the image's host failed several times in a row. Or send the image as a data: URI."),
    Code("too_many_images", 400, _BAD, False, "Send fewer images per request."),
    Code("queue_full", 429, _BUSY, True, "Wait for Retry-After seconds, then send again."),
    Code("queue_too_long", 429, _BUSY, True, "Wait for Retry-After seconds, then send again, or send with a larger x-ttft-budget-ms: the first token would have come too late."),
    Code("shed", 429, _BUSY, True, "Wait for Retry-After seconds, then send again, or send as another x-slo-class: the operator refuses this class for now."),
    Code("kv_lease_exceeded", 413, _BAD, False, "Send fewer or smaller images, less text, a smaller max_tokens or n: the message has the arithmetic. The operator can raise lease.cap, or set degrade for the SLO class."),
    Code("ttft_budget_exceeded", 504, "timeout_error", True, "Send again later, or with a larger x-ttft-budget-ms; the message says which hop spent the time."),
    Code("engine_failed", 502, _SERVER, True, "Send again; if it persists, look at the engine's log in the run folder."),
    Code("engine_rejected", 400, _BAD, False, "Correct the request: the engine's own message is included."),
    Code("engine_busy", 503, _BUSY, True, "Wait for Retry-After seconds, then send again: the engine refused the work."),
    Code("engine_unavailable", 503, _SERVER, True, "Wait for Retry-After seconds: no prefill/decode pair is ready."),
    Code("shutting_down", 503, _SERVER, True, "Send to another gateway: this one is stopping."),
    Code("lease_lapsed", 503, _SERVER, True, "Send again: the gateway was cut off from the ledger that it shares with others, or stood still, and lost its part of the KV pool."),
    Code("no_grant", 503, _SERVER, True, "Wait for Retry-After seconds, or send to another gateway: this one has no part yet of the KV pools that they share."),
    Code("change_conflict", 409, _BAD, False, "Look at GET /admin/v1/state; send again with force where the change is meant all the same."),
    Code("nothing_left_to_serve", 409, _BAD, False, "Bring another engine of that role back first, or send again with force."),
    Code("change_not_recorded", 503, _SERVER, True, "Make room on the run folder's disk: a change that cannot be written down is not made."),
    Code("client_closed_request", 499, "client_error", True, "Nothing: the client closed the connection first."),
    Code("internal_error", 500, _SERVER, True, "Report it with the request id: this is a fault of the gateway."),
)  # fmt: skip


class ToolkitError(Exception):
    """Any failure this project raises on purpose. Never raised itself.

    message: what a client may read. internal: what is beside it for operators alone, an engine's own words for one; str()
    has both, for logs, the journal and traces. action: what to do, where that is more particular than what the code says.
    """

    default_code: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        hop: str | None = None,
        internal: str = "",
        action: str = "",
    ) -> None:
        super().__init__(f"{message} [{internal}]" if internal else message)
        self.message = message
        self.internal = internal
        self.code = CODES[code or self.default_code]
        self.action = action or self.code.action
        self.param = param
        self.retry_after_s = retry_after_s
        self.hop = hop

    @property
    def status(self) -> int:
        return self.code.status

    def body(self, request_id: str | None = None) -> dict[str, Any]:
        """The OpenAI error object: {"error": {message, type, param, code, ...}}."""
        error: dict[str, Any] = {
            "message": self.message,
            "type": self.code.kind,
            "param": self.param,
            "code": self.code.code,
            "action": self.action,
        }
        if self.hop is not None:
            error["hop"] = self.hop
        if request_id is not None:
            error["request_id"] = request_id
        return {"error": error}


class InvalidRequest(ToolkitError):
    """The request is wrong and will stay wrong."""

    default_code = "invalid_request"


class TooLarge(InvalidRequest):
    """A limit on bytes, pixels, sides or tokens was passed."""

    default_code = "body_too_large"


class Unauthorized(InvalidRequest):
    """No key, or a key this gateway does not know."""

    default_code = "unauthorized"


class NotFound(InvalidRequest):
    """No such path or model."""

    default_code = "not_found"


class Conflict(InvalidRequest):
    """Right in itself, but not with what is so now."""

    default_code = "change_conflict"


class Busy(ToolkitError):
    """Backpressure: nothing is broken, there is no room now."""

    default_code = "queue_full"


class OutOfTime(ToolkitError):
    """The TTFT budget ended before the first token."""

    default_code = "ttft_budget_exceeded"


class EngineFailed(ToolkitError):
    """An engine answered wrongly, stopped answering, or died."""

    default_code = "engine_failed"


class EngineUnavailable(EngineFailed):
    """No prefill/decode pair is ready."""

    default_code = "engine_unavailable"


class ClientGone(ToolkitError):
    """The client closed its connection before the answer ended."""

    default_code = "client_closed_request"


class EnvironmentFault(ToolkitError):
    """This machine lacks something the command needs; the message says how to get it (exit code 3)."""


class UsageFault(ToolkitError):
    """The command line or a configuration file is wrong; the message names the place (exit code 2)."""
