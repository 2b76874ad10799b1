"""The gateway's paths."""

import uuid
from collections.abc import Awaitable, Callable

from serving.exchange import Exchange
from serving.keys import Keys
from serving.lifecycle import Lifecycle
from serving.reply import tell
from serving.status import Status
from toolkit.core.errors import InvalidRequest, NotFound, ToolkitError

MAX_HEADER_BYTES = 64_000

Answer = tuple[int, str, bytes]


class Api:
    """Routes one exchange. Pages are small and made at once; chat requests have a life of their own."""

    def __init__(self, lifecycle: Lifecycle, keys: Keys, status: Status) -> None:
        self._lifecycle = lifecycle
        self._keys = keys
        self._pages: dict[str, Callable[[Exchange], Answer]] = {
            "/healthz": lambda _: (200, "application/json", b'{"status":"alive"}'),
            "/readyz": lambda _: status.ready(),
            "/metrics": lambda _: status.metrics(),
            "/v1/models": lambda exchange: self._models(exchange, status),
        }

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        try:
            handler = self._route(exchange)
            await handler(exchange)
        except ToolkitError as error:
            await tell(exchange, error, f"req-{uuid.uuid4().hex}")

    def _route(self, exchange: Exchange) -> Callable[[Exchange], Awaitable[None]]:
        head = exchange.head
        if sum(len(name) + len(value) for name, value in head.headers) > MAX_HEADER_BYTES:
            raise InvalidRequest(
                f"The headers pass the limit of {MAX_HEADER_BYTES} bytes.", code="headers_too_large"
            )
        if head.path == "/v1/chat/completions":
            self._expect(head.method, "POST")
            return self._lifecycle.run
        page = self._pages.get(head.path)
        if page is None:
            raise NotFound(f"There is nothing at {head.path:.200}; the API is POST /v1/chat/completions.")
        self._expect(head.method, "GET", "HEAD")
        return lambda exchange: self._send_page(exchange, page)

    def _expect(self, method: str, *allowed: str) -> None:
        if method not in allowed:
            raise InvalidRequest(f"Use {' or '.join(allowed)} here, not {method}.", code="method_not_allowed")

    def _models(self, exchange: Exchange, status: Status) -> Answer:
        self._keys.name_of(exchange.head.header("authorization"))
        return status.models()

    async def _send_page(self, exchange: Exchange, page: Callable[[Exchange], Answer]) -> None:
        code, content_type, body = page(exchange)
        await exchange.send_head(code, [("content-type", content_type), ("content-length", str(len(body)))])
        if exchange.head.method != "HEAD":
            await exchange.send(body)
        await exchange.end()
