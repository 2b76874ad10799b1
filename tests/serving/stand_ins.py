"""Stand-in engines in a test's own event loop, on free ports, with a tap where their clients come in.

The same paths meet the real engine in tests/live and tests/conformance.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from serving.engines.simulated.effects import Limits
from serving.engines.simulated.faults import Faults
from serving.engines.simulated.http import App, Message, Receive, Send
from serving.engines.simulated.model import Costs
from serving.engines.simulated.stand_in import Settings, StandIn
from serving.service import EngineEndpoint
from toolkit.core.clock import SystemClock

INSTANT = Costs(
    prefill_s=0, prefill_token_s=0, prefill_pair_s=0, encode_s=0, encode_token_s=0, decode_s=0, decode_request_s=0,
    decode_token_s=0, transfer_s=0, transfer_bytes_per_s=1e18, kv_token_bytes=512,
)  # fmt: skip
"""An engine whose work takes no time."""
ANSWER_TOKENS = 2
FROZEN = {"freeze": True}
"""Takes every request and says nothing."""


def wire(then: str = "", after_events: int = 0, **fields: Any) -> dict[str, Any]:
    """A fault on the way out, as POST /simulated/faults takes it."""
    return {"wire": {"then": then, "after_events": after_events, **fields}}


SILENT = wire("silence")
"""Works, and nothing of its answer comes out."""


@dataclass
class Seen:
    """One generation as the tap saw it. sent: what the engine wrote. closed: the client went away before the end."""

    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        return b"".join(self.sent).decode()

    @property
    def said(self) -> str:
        """The words of a streamed or whole answer."""
        if not self.body.get("stream"):
            return str(orjson.loads(self.text)["choices"][0]["message"]["content"])
        events = [orjson.loads(event[6:]) for event in self.text.split("\n\n")[:-2]]
        return "".join(choice["delta"].get("content") or "" for one in events for choice in one["choices"])


class Leg:
    """One stand-in. calls: generations it was asked for; aborted: rids it was told to abort."""

    def __init__(self, name: str, faults: dict[str, Any], **settings: Any) -> None:
        role = name.partition("-")[0]
        made = Settings(
            role=role,  # type: ignore[arg-type]
            **{"costs": INSTANT, "answer_tokens": ANSWER_TOKENS, "health_generates": False, **settings},
        )
        self.name = name
        self.role = role
        self.calls: list[Seen] = []
        self.aborted: list[str] = []
        self.stand_in = StandIn(made, SystemClock(), random.Random(name), self._tap)
        self.set(**faults)

    def set(self, **faults: Any) -> None:
        """These faults and no others."""
        self.stand_in.engine.set_faults(Faults.of(faults))

    @property
    def endpoint(self) -> EngineEndpoint:
        stand_in = self.stand_in
        return EngineEndpoint(
            name=self.name,
            role=self.role,  # type: ignore[arg-type]
            url=stand_in.url,
            bootstrap_port=stand_in.bootstrap_port,
        )

    def _tap(self, inner: App) -> App:
        async def asgi(scope: Message, receive: Receive, send: Send) -> None:
            if scope["path"] not in ("/v1/chat/completions", "/abort_request"):
                await inner(scope, receive, send)
                return
            body = bytearray()
            seen: Seen | None = None

            async def tapped_receive() -> Message:
                nonlocal seen
                message = await receive()
                if message["type"] == "http.disconnect":
                    if seen is not None:
                        seen.closed.set()
                    return message
                body.extend(message.get("body", b""))
                if not message.get("more_body"):
                    document = orjson.loads(bytes(body))
                    if scope["path"] == "/abort_request":
                        self.aborted.append(document["rid"])
                    else:
                        seen = Seen(document, {k.decode(): v.decode() for k, v in scope["headers"]})
                        self.calls.append(seen)
                return message

            async def tapped_send(message: Message) -> None:
                await send(message)
                if seen is not None and message["type"] == "http.response.body":
                    seen.sent.append(message["body"])

            await inner(scope, tapped_receive, tapped_send)

        return asgi


@contextlib.asynccontextmanager
async def stand_ins(**faults: dict[str, Any]) -> AsyncIterator[dict[str, Leg]]:
    """Started engines by name, as stand_ins(prefill_0={}, decode_0=FROZEN). A value holds faults; under "settings" it may
    hold Settings of the stand-in."""
    legs = {}
    for key, given in faults.items():
        name = key.replace("_", "-")
        legs[name] = Leg(
            name, {k: v for k, v in given.items() if k != "settings"}, **given.get("settings", {})
        )
    try:
        for leg in legs.values():
            await leg.stand_in.start()
        yield legs
    finally:
        for leg in legs.values():
            await leg.stand_in.stop()


def sized(**limits: Any) -> dict[str, Any]:
    """Engine sizes and timeouts for a value of `stand_ins`."""
    return {"settings": {"limits": Limits(**limits)}}
