"""Who asks during the storm: open-loop text requests, through a gateway or through a naive front that retries at once."""

import asyncio
import itertools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from serving.attempt import Pair
from serving.engine_body import Rendezvous
from serving.stream import Kind, StreamReader
from toolkit.core.errors import ToolkitError
from toolkit.core.http.client import HttpClient
from toolkit.core.http.errors import TransportError
from toolkit.core.http.sse import EventSplitter
from toolkit.core.journal import read

BUDGET_S = 3.0
"""To the first token, of everybody: the class standard's."""
ANSWER_S = 30.0
TRIES, TRY_S = 6, 1.0
"""The naive front: 5 retries (sglang-router's and smg's default) at once, each given so long to its first token."""


@dataclass(frozen=True)
class Shot:
    """One request. due_s: from the load's begin. ttft_s: from when it was due; None: no whole answer came. slip_s: how much later
    than due it was asked."""

    due_s: float
    ttft_s: float | None
    status: int
    code: str
    attempts: int
    request_id: str = ""
    slip_s: float = 0.0

    @property
    def good(self) -> bool:
        return self.ttft_s is not None and self.ttft_s <= BUDGET_S


class Way(ABC):
    """A way to the engines."""

    def __init__(self, model: str) -> None:
        self.client = HttpClient()
        self._model = model

    def body(self, number: int) -> dict[str, object]:
        asked = f"Request {number}: name a harbour and what is loaded there at dawn."
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": asked}],
            "max_tokens": 8,
            "ignore_eos": True,
            "stream": True,
        }

    @abstractmethod
    async def ask(self, number: int, due_s: float, due: float) -> Shot:
        """due: the same instant on the monotonic clock."""


class Told(Exception):
    """An answer with another status than 200. Raised inside this file only."""

    def __init__(self, status: int, code: str, request_id: str) -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code, self.request_id = status, code, request_id


async def streamed(client: HttpClient, url: str, body: bytes, first_within_s: float) -> tuple[float, str]:
    """When the first token of a whole streamed answer came, and the id of the request. Raises Told and what else went wrong."""
    first, splitter, reader = None, EventSplitter(), StreamReader(url)
    async with asyncio.timeout(first_within_s) as timer:
        response = await client.send(
            "POST", f"{url}/v1/chat/completions", [("content-type", "application/json")], body
        )
        request_id = response.header("x-request-id") or ""
        try:
            if response.status != 200:
                error = orjson.loads(await response.read(64_000)).get("error") or {}
                raise Told(response.status, str(error.get("code", "")), request_id)
            async for chunk, at in response.chunks():
                for event in splitter.feed(chunk):
                    said = reader.read(event.data) in (Kind.TOKEN, Kind.FINISH)  # an answer may be empty
                    if said and first is None:
                        first = at
                        timer.reschedule(asyncio.get_running_loop().time() + ANSWER_S)
            reader.end()
        finally:
            response.close()
    if first is None:
        raise TimeoutError
    return first, request_id


class Through(Way):
    """A gateway: asked once, whatever it answers."""

    def __init__(self, model: str, url: str) -> None:
        super().__init__(model)
        self._url = url

    async def ask(self, number: int, due_s: float, due: float) -> Shot:
        try:
            first, request_id = await streamed(
                self.client, self._url, orjson.dumps(self.body(number)), ANSWER_S
            )
        except Told as told:
            return Shot(due_s, None, told.status, told.code, 1, told.request_id)
        except (TransportError, TimeoutError, ToolkitError) as error:
            code = error.code.code if isinstance(error, ToolkitError) else type(error).__name__
            return Shot(due_s, None, 200, code, 1)
        return Shot(due_s, first - due, 200, "", 1, request_id)


class Naive(Way):
    """Straight to the pairs in turn: what fails or is slow is asked again at once, elsewhere; nothing is aborted."""

    def __init__(self, model: str, pairs: Sequence[Pair], tries: int = TRIES, try_s: float = TRY_S) -> None:
        super().__init__(model)
        self._tries, self._try_s = tries, try_s
        self._turn = itertools.cycle(pairs)
        self._ids = Rendezvous(random.Random(1))

    async def ask(self, number: int, due_s: float, due: float) -> Shot:
        code = ""
        for attempt in range(1, self._tries + 1):
            try:
                first = await self._attempt(next(self._turn), self.body(number))
            except* (Told, ToolkitError, TransportError, TimeoutError) as failures:
                code = type(failures.exceptions[0]).__name__
            else:
                return Shot(due_s, first - due, 200, "", attempt)
        return Shot(due_s, None, 502, code, self._tries)

    async def _attempt(self, pair: Pair, body: dict[str, object]) -> float:
        where = {
            "bootstrap_host": pair.prefill.bootstrap_host,
            "bootstrap_port": pair.prefill.bootstrap_port,
            "bootstrap_room": self._ids.room(),
        }

        def leg(url: str) -> Coroutine[object, object, tuple[float, str]]:
            whole = orjson.dumps({**body, **where, "rid": self._ids.rid()})
            return streamed(self.client, url, whole, self._try_s)

        async with asyncio.TaskGroup() as group:
            prefill = group.create_task(leg(pair.prefill.url))
            first, _ = await leg(pair.decode.url)
            prefill.cancel()
        return first


async def load(way: Way, rate: float, seconds: float, seed: int) -> list[Shot]:
    """Poisson arrivals; returns when each has its answer or its failure, in the order in which they were due."""
    source, began = random.Random(seed), time.monotonic()
    due_s, asks = source.expovariate(rate), []

    async def one(number: int, due_s: float) -> Shot:
        slip_s = time.monotonic() - began - due_s
        return replace(await way.ask(number, due_s, began + due_s), slip_s=slip_s)

    async with asyncio.TaskGroup() as group:
        for number in itertools.count():
            if due_s >= seconds:
                break
            await asyncio.sleep(began + due_s - time.monotonic())
            asks.append(group.create_task(one(seed * 1_000_000 + number, due_s)))
            due_s += source.expovariate(rate)
    await way.client.close()
    return [ask.result() for ask in asks]


def with_attempts(shots: list[Shot], journal: Path) -> list[Shot]:
    """The attempts that the gateway wrote down for each."""
    made = {record["request_id"]: record["attempts"] for record in read(journal)}
    return [replace(one, attempts=made.get(one.request_id, 0)) for one in shots]
