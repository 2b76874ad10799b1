"""One attempt: the same request to both legs of a prefill/decode pair, answered from decode.

    POST body + rid + bootstrap --> prefill   computes the KV cache, sends it over Mooncake, answers when it is gone
    POST body + rid + bootstrap --> decode    receives the KV cache, generates, streams

(SGLang's own small balancer does the same, mini_lb.py:109.) The legs live and die together: whatever ends the attempt
early, a failed leg, the budget, a client that hung up, closes both connections and sends /abort_request to both engines
at once, because SGLang itself notices a closed connection only every 4 s and keeps a half-dead pair waiting for minutes
(environ.py:751).
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from serving.abort import EARLY_S, Aborter
from serving.attempt import LegLost, Limits, Pair, Progress
from serving.engine_body import EngineBody, Rendezvous
from serving.guarded import first_leaf, leaves
from serving.legs import Forward, Legs, OnPrefilled, Posting
from serving.service import EngineEndpoint
from toolkit.core.clock import Clock
from toolkit.core.errors import ToolkitError
from toolkit.core.http.client import HttpClient
from toolkit.core.http.request import JSON_HEADERS

T = TypeVar("T")
DecodeLeg = Callable[[Posting, asyncio.Task[None]], Awaitable[T]]


class Dispatcher:
    """Makes attempts; owns what sends their aborts."""

    def __init__(
        self,
        client: HttpClient,
        clock: Clock,
        rendezvous: Rendezvous,
        on_abort: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._legs = Legs(client, clock)
        self._clock = clock
        self._rendezvous = rendezvous
        self._aborter = Aborter(client, on_abort)

    async def stream(
        self,
        pair: Pair,
        body: EngineBody,
        limits: Limits,
        progress: Progress,
        forward: Forward,
        on_prefilled: OnPrefilled = lambda: None,
    ) -> None:
        """Stream the answer through `forward`, whole events only, nothing before the first content token.

        on_prefilled: called when the KV cache has gone to decode. Raises the typed error of whatever ended it early;
        `progress` tells how far it came.
        """
        await self._attempt(
            pair,
            body,
            progress,
            on_prefilled,
            lambda post, _: self._legs.decode_stream(post, pair.decode.name, limits, progress, forward),
        )

    async def whole(
        self,
        pair: Pair,
        body: EngineBody,
        limits: Limits,
        progress: Progress,
        on_prefilled: OnPrefilled = lambda: None,
    ) -> bytes:
        """The non-streamed answer. Its first token counts as out when the prefill leg has answered."""
        return await self._attempt(
            pair,
            body,
            progress,
            on_prefilled,
            lambda post, prefill: self._legs.decode_whole(post, prefill, pair.decode.name, limits, progress),
        )

    async def drain(self) -> None:
        """Wait for abort requests under way; second ones are sent now. The dispatcher makes no attempt after this."""
        await self._aborter.drain()

    @property
    def open_aborts(self) -> int:
        return len(self._aborter)

    async def _attempt(
        self,
        pair: Pair,
        body: EngineBody,
        progress: Progress,
        on_prefilled: OnPrefilled,
        decode: DecodeLeg[T],
    ) -> T:
        prefill_rid, decode_rid = self._rendezvous.rid(), self._rendezvous.rid()
        room = self._rendezvous.room()
        progress.rids, progress.room = (prefill_rid, decode_rid), room
        progress.dispatched_at = self._clock.monotonic()

        headers = JSON_HEADERS
        if body.priority is not None:
            headers = (*JSON_HEADERS, ("x-override-priority", str(body.priority)))

        def post(engine: EngineEndpoint, rid: str) -> Posting:
            pieces = body.for_leg(
                progress.choice,
                rid=rid,
                bootstrap_host=pair.prefill.bootstrap_host,
                bootstrap_port=pair.prefill.bootstrap_port,
                bootstrap_room=room,
            )
            return partial(self._legs.post, engine.name, f"{engine.url}/v1", pieces, headers)

        whole = False
        try:
            async with asyncio.TaskGroup() as group:
                prefill = group.create_task(
                    self._legs.prefill(
                        post(pair.prefill, prefill_rid), pair.prefill.name, progress, on_prefilled
                    )
                )
                answer = await decode(post(pair.decode, decode_rid), prefill)
                whole = True
                prefill.cancel()
            return answer
        except BaseExceptionGroup as failures:
            raise _first(failures) from None
        finally:
            if not whole:
                early = self._clock.monotonic() - progress.dispatched_at < EARLY_S
                self._aborter.abort(pair.prefill, prefill_rid, again=early)
                self._aborter.abort(pair.decode, decode_rid, again=early)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The most telling of the legs' failures: what the engine said beats a lost connection, which it often causes."""
    told = [leaf for leaf in leaves(failures) if isinstance(leaf, ToolkitError)]
    if not told:
        return first_leaf(failures)
    return min(told, key=lambda leaf: isinstance(leaf, LegLost))
