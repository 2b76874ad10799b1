"""Several choices (n > 1) of one request as several attempts, merged into one answer.

Each attempt asks for one choice over its own pair, rids and room (why: serving/engine_body.py `compose`). Choice i is told from
the others by its index; ids are made one; usage counts the prompt once and every completion.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import orjson

from serving.attempt import Progress
from serving.guarded import first_leaf
from serving.legs import Forward
from toolkit.core.errors import EngineFailed
from toolkit.core.http.sse import EventSplitter

StreamOne = Callable[[int, Forward], Awaitable[None]]
WholeOne = Callable[[int], Awaitable[bytes]]


async def stream_all(choices: int, one: StreamOne, forward: Forward) -> None:
    """Stream `choices` attempts at once into `forward`. The first failure ends all and is raised."""
    merger = Merger()
    turn = asyncio.Lock()

    async def run(index: int) -> None:
        splitter = EventSplitter()

        async def take(piece: bytes) -> None:
            merged = b"".join(merger.take(index, event.data) for event in splitter.feed(piece))
            if merged:
                async with turn:
                    await forward(merged)

        await one(index, take)

    await _together(run(index) for index in range(choices))
    await forward(merger.end())


async def whole_all(choices: int, one: WholeOne) -> bytes:
    """One answer from `choices` attempts at once. The first failure ends all and is raised."""
    answers: list[dict[str, Any]] = [{}] * choices

    async def run(index: int) -> None:
        answers[index] = orjson.loads(await one(index))

    await _together(run(index) for index in range(choices))
    merged = dict(answers[0])
    merged["choices"] = [{**answer["choices"][0], "index": index} for index, answer in enumerate(answers)]
    merged["usage"] = add_usage([answer.get("usage") or {} for answer in answers])
    return _dumped(merged)


class Merger:
    """Events of several one-choice streams as the events of one stream."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._usage: dict[int, dict[str, Any]] = {}

    def take(self, index: int, data: bytes) -> bytes:
        """One event of choice `index`, as it goes into the merged stream; empty for what comes only once, at the end."""
        if not data or data == b"[DONE]":
            return b""
        document = orjson.loads(data)
        if self._id is None:
            self._id = document.get("id")
        document["id"] = self._id
        if not document.get("choices"):
            self._usage[index] = document
            return b""
        for choice in document["choices"]:
            choice["index"] = index
        return b"data: " + _dumped(document) + b"\n\n"

    def end(self) -> bytes:
        """What closes the merged stream: the usage event, if any stream brought one, and [DONE]."""
        closing = b""
        if self._usage:
            document = dict(next(iter(self._usage.values())))
            document["usage"] = add_usage([one.get("usage") or {} for one in self._usage.values()])
            closing = b"data: " + _dumped(document) + b"\n\n"
        return closing + b"data: [DONE]\n\n"


def add_usage(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The prompt counted once, the completions added up."""
    total = dict(usages[0])
    completion = sum(int(usage.get("completion_tokens") or 0) for usage in usages)
    total["completion_tokens"] = completion
    total["total_tokens"] = int(total.get("prompt_tokens") or 0) + completion
    return total


def merge_progress(parts: Sequence[Progress], into: Progress) -> None:
    """The attempts' progress as the request's: the earliest instants, every gap, usage added up."""

    def earliest(name: str) -> float | None:
        found = [value for value in (getattr(part, name) for part in parts) if value is not None]
        return min(found) if found else None

    into.dispatched_at = earliest("dispatched_at")
    into.prefill_done_at = earliest("prefill_done_at")
    into.first_token_at = earliest("first_token_at")
    into.gaps_s = [gap for part in parts for gap in part.gaps_s]
    into.token_events = sum(part.token_events for part in parts)
    into.rids = tuple(rid for part in parts for rid in part.rids)
    into.attempts = sum(part.attempts for part in parts)
    into.lost = [lost for part in parts for lost in part.lost]
    into.room = parts[0].room
    into.pair = parts[0].pair
    into.finish_reason = parts[0].finish_reason
    if all(part.usage for part in parts):
        into.usage = add_usage([part.usage for part in parts])


def _dumped(document: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError as error:  # orjson reads documents that are nested deeper than those it writes
        raise EngineFailed("An engine's answer is nested too deeply to be merged.") from error


async def _together(runs: Iterable[Coroutine[Any, Any, None]]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(run)
    except BaseExceptionGroup as failures:
        raise first_leaf(failures) from None
