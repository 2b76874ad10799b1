"""What can go wrong below HTTP's own statuses. A status of 500 is an answer, not one of these.

TransportError
+-- ConnectFailed        no connection: refused, unreachable, unresolved, TLS failed, too slow
+-- ConnectionLost       reset or closed before the whole head of the answer was there
+-- Truncated            closed inside the body
+-- ProtocolViolation    the peer does not speak HTTP/1.1 (or SSE), or passes a limit on heads or events
+-- BodyTooLarge         the caller's own limit on a body was passed
"""

from typing import Literal

Phase = Literal["connect", "write", "head", "body"]


class TransportError(Exception):
    """No complete answer was received. Never raised itself. `phase`: what the exchange was doing."""

    def __init__(self, message: str, phase: Phase = "head") -> None:
        super().__init__(message)
        self.phase: Phase = phase


class ConnectFailed(TransportError):
    """Nothing of the request was sent; always safe to try again elsewhere."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "connect")


class ConnectionLost(TransportError):
    """The connection ended before the head of the answer; the peer may or may not have seen the request."""


class Truncated(TransportError):
    """The connection ended inside the body: what was received is a prefix."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "body")


class ProtocolViolation(TransportError):
    """The peer's bytes are not a well-formed answer; the connection is not used again."""


class BodyTooLarge(TransportError):
    """The body passes the limit that the caller set; the rest was not read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "body")
