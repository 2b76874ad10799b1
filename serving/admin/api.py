"""The admin API's paths, on a listener of its own.

GET  /admin/v1/state              what is so now, and what can be changed
GET  /admin/v1/changes            the last changes, newest first
POST /admin/v1/changes            {"set": {key: value, ...}, "reason": "", "for_s": null, "force": false}
POST /admin/v1/changes/ID/undo    {"reason": "", "force": false}
"""

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import orjson
from pydantic import Field

from serving.admin.advice import advice
from serving.admin.desk import Desk
from serving.admin.settings import Value
from serving.exchange import Exchange
from serving.keys import Keys
from serving.reply import tell
from toolkit.core.admin import LONGEST_S
from toolkit.core.config import Section, validate
from toolkit.core.errors import InvalidRequest, NotFound, TooLarge, ToolkitError, Unauthorized, UsageFault

log = logging.getLogger("toolkit.admin")

MAX_BODY_BYTES = 100_000
BODY_S = 10.0
LISTED = 200
UNDO = re.compile(r"/admin/v1/changes/([0-9]{1,9})/undo")

B = TypeVar("B", bound=Section)
Document = Mapping[str, Any]


class SetBody(Section):
    """A change to make."""

    set: dict[str, Value] = Field(min_length=1, max_length=100, description="Values by key.")
    reason: str = Field("", max_length=500)
    for_s: float | None = Field(None, gt=0, le=LONGEST_S, description="After which it is taken back.")
    force: bool = False


class UndoBody(Section):
    """A change to take back."""

    reason: str = Field("", max_length=500)
    force: bool = False


class AdminApi:
    """Answers one exchange at a time, to those who hold a token."""

    def __init__(self, desk: Desk, keys: Keys, state: Callable[[], Document], url: str) -> None:
        """url: of the gateway, so that every answer says whose it is."""
        self._desk = desk
        self._url = url
        self._keys = keys
        self._state = state

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        try:
            who = self._who(exchange)
            document = orjson.dumps({**await self._answer(exchange, who), "gateway_url": self._url})
        except ToolkitError as error:
            await tell(exchange, error, f"req-{uuid.uuid4().hex}")
            return
        except Exception as failure:
            log.exception("a call of the admin API failed")
            told = ToolkitError(f"The admin API failed: {type(failure).__name__}.")
            await tell(exchange, told, f"req-{uuid.uuid4().hex}")
            return
        length = ("content-length", str(len(document)))
        await exchange.send_head(200, [("content-type", "application/json"), length])
        await exchange.send(document)
        await exchange.end()

    def _who(self, exchange: Exchange) -> str:
        try:
            return self._keys.name_of(exchange.head.header("authorization"))
        except Unauthorized as error:
            raise Unauthorized(
                "No valid token of the admin API was sent; API keys of the gateway are none.",
                action="Send `Authorization: Bearer TOKEN` with the token of the run folder's admin.json, or of admin.tokens_file.",
            ) from error

    async def _answer(self, exchange: Exchange, who: str) -> Document:
        desk, path = self._desk, exchange.head.path
        undone = UNDO.fullmatch(path)
        if undone:
            _expect(exchange, "POST")
            undo = await _body(exchange, UndoBody)
            change = await desk.undo(int(undone[1]), who=who, reason=undo.reason, force=undo.force)
            return {"change": change.to_dict()}
        if path == "/admin/v1/changes":
            if exchange.head.method == "POST":
                asked = await _body(exchange, SetBody)
                before = desk.ledger.present.config
                made = await desk.change(
                    asked.set, who=who, reason=asked.reason, for_s=asked.for_s, force=asked.force
                )
                told = advice(before, desk.ledger.present.config)
                return {"change": None if made is None else made.to_dict(), "warnings": told}
            _expect(exchange, "GET", "POST")
            ended, listed = desk.ledger.ended_by, reversed(desk.ledger.changes[-LISTED:])
            return {"changes": [{**change.to_dict(), "ended_by": ended.get(change.id)} for change in listed]}
        if path == "/admin/v1/state":
            _expect(exchange, "GET")
            return self._state()
        raise NotFound(
            f"There is nothing at {path:.200}.", action="Use /admin/v1/state or /admin/v1/changes."
        )


def _expect(exchange: Exchange, *methods: str) -> None:
    method = exchange.head.method
    if method not in methods:
        raise InvalidRequest(f"Use {' or '.join(methods)} here, not {method:.20}.", code="method_not_allowed")


async def _body(exchange: Exchange, model: type[B]) -> B:
    """Raises InvalidRequest (invalid_json, invalid_request, body_timeout), TooLarge and ClientGone."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in exchange.body():
                data += piece
                if len(data) > MAX_BODY_BYTES:
                    raise TooLarge(f"The body passes the limit of {MAX_BODY_BYTES} bytes.")
    except TimeoutError:
        raise InvalidRequest(f"The body did not arrive within {BODY_S:.0f} s.", code="body_timeout") from None
    try:
        document = orjson.loads(data or b"{}")
        if not isinstance(document, dict):
            raise InvalidRequest("The body must be a JSON object.", code="invalid_json")
        return validate(model, document, "The body is wrong")
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.", code="invalid_json") from error
    except UsageFault as error:
        raise InvalidRequest(error.message) from error
