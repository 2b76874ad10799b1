"""From a composed body to an answer: takes pairs, makes the attempts, judges the pairs by how they went."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from serving.chat import EngineBody
from serving.choices import merge_progress, stream_all, whole_all
from serving.dispatch import Dispatcher, Forward, LegLost, Limits, Pair, Progress
from serving.pairs import PairBook
from toolkit.core.clock import Clock
from toolkit.core.errors import EngineFailed, EngineUnavailable, OutOfTime

T = TypeVar("T")

SUSPECT_AFTER_S = 2.0
"""An attempt that ran out of time counts against its pair only if it had this long (a tight budget is no engine fault) and
nothing else came out of the pair meanwhile (an overloaded pair is no broken one: taking it out would add to the failures)."""


class Answerer:
    """Answers requests over the pairs in rotation."""

    def __init__(
        self, book: PairBook, dispatcher: Dispatcher, clock: Clock, on_lost: Callable[[str], None]
    ) -> None:
        """on_lost is told the name of an engine whose connection broke."""
        self._book = book
        self._dispatcher = dispatcher
        self._clock = clock
        self._on_lost = on_lost

    async def stream(
        self, body: EngineBody, choices: int, limits: Limits, progress: Progress, forward: Forward
    ) -> None:
        """Stream the answer through `forward`. Raises the typed error of the first attempt that failed."""

        async def one(mine: Progress, out: Forward) -> None:
            await self._on_a_pair(
                mine, lambda pair: self._dispatcher.stream(pair, body, limits, mine, self._moving(pair, out))
            )

        if choices == 1:
            await one(progress, forward)
            return
        parts = [Progress(choice=index) for index in range(choices)]
        try:
            await stream_all(
                choices, lambda index, out: one(parts[index], out), self._telling(parts, progress, forward)
            )
        finally:
            merge_progress(parts, progress)

    async def whole(self, body: EngineBody, choices: int, limits: Limits, progress: Progress) -> bytes:
        """The non-streamed answer. Raises the typed error of the first attempt that failed."""

        async def one(mine: Progress) -> bytes:
            return await self._on_a_pair(mine, lambda pair: self._dispatcher.whole(pair, body, limits, mine))

        if choices == 1:
            return await one(progress)
        parts = [Progress(choice=index) for index in range(choices)]
        try:
            return await whole_all(choices, lambda index: one(parts[index]))
        finally:
            merge_progress(parts, progress)

    def _telling(self, parts: list[Progress], progress: Progress, forward: Forward) -> Forward:
        async def tell(piece: bytes) -> None:
            if progress.pair is None:  # response headers name the pair
                merge_progress(parts, progress)
            await forward(piece)

        return tell

    def _moving(self, pair: Pair, forward: Forward) -> Forward:
        async def move(piece: bytes) -> None:
            self._book.moved(pair)
            await forward(piece)

        return move

    async def _on_a_pair(self, progress: Progress, attempt: Callable[[Pair], Awaitable[T]]) -> T:
        book = self._book
        pair = progress.pair = book.take()
        moves = book.moves(pair)
        try:
            answer = await attempt(pair)
        except LegLost as error:
            self._on_lost(error.engine)
            raise
        except EngineUnavailable:
            raise
        except EngineFailed:
            book.failed(pair)
            raise
        except OutOfTime:
            begun = progress.dispatched_at
            if (
                begun is not None
                and self._clock.monotonic() - begun >= SUSPECT_AFTER_S
                and book.moves(pair) == moves
            ):
                book.failed(pair)
            raise
        else:
            book.moved(pair)
            return answer
        finally:
            book.give_back(pair)
