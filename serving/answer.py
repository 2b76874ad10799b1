"""From a composed body to an answer: takes pairs, makes the attempts, judges the pairs by how they went.

An attempt that fails before its first token may be followed by another one: serving/schedule/retry.py decides, over the
pair that the book thinks best, with rids and a room of its own. What a client has seen a token of is never begun anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from serving.attempt import LegLost, Limits, Lost, Pair, Progress
from serving.choices import merge_progress, stream_all, whole_all
from serving.dispatch import Dispatcher
from serving.engine_body import EngineBody
from serving.guarded import GivenUp, given_up
from serving.hold import Hold
from serving.instances import Taken, Want
from serving.legs import Forward
from serving.pairs import ANY, PairBook
from serving.schedule.retry import Cause, Refusal, Retries
from serving.standing import Moves
from serving.stream import TransferFailed
from toolkit.core.clock import Clock
from toolkit.core.errors import Busy, EngineFailed, EngineUnavailable, OutOfTime, ToolkitError

T = TypeVar("T")

SUSPECT_AFTER_S = 2.0
"""An attempt that ran out of time counts against its pair only if it had this long (a tight budget is no engine fault) and
nothing else came out of the pair meanwhile (an overloaded pair is no broken one: taking it out would add to the failures)."""


class Stalled(EngineFailed):
    """The attempt was given up for another pair. Never told to a client: it is raised only where a retry is granted."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks of pairs, each of its choices, and its KV lease where there is one."""

    want: Want
    hold: Hold | None

    def decodes(self, choice: int, serving: Collection[str]) -> Collection[str] | None:
        """Where its choice may go; None: anywhere."""
        return None if self.hold is None else self.hold.open_to(choice, serving)


class Answerer:
    """Answers requests over the pairs in rotation."""

    def __init__(
        self,
        book: PairBook,
        dispatcher: Dispatcher,
        clock: Clock,
        on_lost: Callable[[str], None],
        on_doubt: Callable[[], None],
        retries: Retries,
    ) -> None:
        """on_lost is told the name of an engine whose connection broke; on_doubt is called when a pair became suspect."""
        self._book = book
        self._dispatcher = dispatcher
        self._clock = clock
        self._retries = retries
        self._on_lost = on_lost
        self._on_doubt = on_doubt

    def decodes(self, now: float) -> Mapping[str, float]:
        """Decode engines that should get the next request, with their weights."""
        return self._book.first_decodes(now)

    async def stream(
        self,
        body: EngineBody,
        choices: int,
        limits: Limits,
        progress: Progress,
        forward: Forward,
        want: Want = ANY,
        hold: Hold | None = None,
    ) -> None:
        """Stream the answer through `forward`. want: of each choice. hold: its KV lease. Raises the typed error of the last
        attempt of the first choice that failed."""

        async def one(mine: Progress, out: Forward) -> None:
            await self._answered(
                mine,
                limits,
                Ask(want, hold),
                lambda taken: self._dispatcher.stream(
                    taken.pair,
                    body,
                    limits,
                    mine,
                    self._moving(taken.pair, out),
                    lambda: self._book.prefilled(taken),
                ),
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

    async def whole(
        self,
        body: EngineBody,
        choices: int,
        limits: Limits,
        progress: Progress,
        want: Want = ANY,
        hold: Hold | None = None,
    ) -> bytes:
        """The non-streamed answer; as `stream` otherwise."""

        async def one(mine: Progress) -> bytes:
            return await self._answered(
                mine,
                limits,
                Ask(want, hold),
                lambda taken: self._dispatcher.whole(
                    taken.pair, body, limits, mine, lambda: self._book.prefilled(taken)
                ),
            )

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

    async def _answered(
        self, progress: Progress, limits: Limits, ask: Ask, attempt: Callable[[Taken], Awaitable[T]]
    ) -> T:
        """Attempts until one succeeds or none is left to make."""
        tried: list[Pair] = []
        while True:
            now = self._clock.monotonic()
            taken = self._take(now, tried, progress.choice, ask)
            if not tried:
                self._retries.arrived(now)
            tried.append(taken.pair)
            progress.again(taken.pair)
            try:
                return await self._attempt(taken, tried, progress, limits, ask, attempt)
            except (EngineFailed, Busy) as error:
                wait_s = self._again(error, tried, progress, limits.begin_by, ask)
            await asyncio.sleep(wait_s)

    def _take(self, now: float, tried: list[Pair], choice: int, ask: Ask) -> Taken:
        """The pair of the next attempt: first on the decode that the request entered, then wherever its lease can go too."""
        book, want, hold = self._book, ask.want, ask.hold
        at = None if hold is None else hold.decode(choice)
        decodes: Collection[str] | None
        if at is not None and not tried and book.has_other((), want=want, decodes=(at,)):
            decodes = (at,)
        else:
            decodes = ask.decodes(choice, book.serving_decodes)
        taken = book.take(now, avoid=tried, want=want, decodes=decodes)
        if hold is not None:
            hold.settle(choice, taken.pair.decode.name)
        return taken

    async def _attempt(
        self,
        taken: Taken,
        tried: list[Pair],
        progress: Progress,
        limits: Limits,
        ask: Ask,
        attempt: Callable[[Taken], Awaitable[T]],
    ) -> T:
        book, pair = self._book, taken.pair
        before = book.moves(pair)
        patience_s = self._retries.stall_s(limits.deadline - self._clock.monotonic())
        try:
            if patience_s is None or len(book.pairs) == 1:
                answer = await attempt(taken)
            else:
                with given_up(patience_s, lambda: self._stalls(before, tried, progress, limits, ask)):
                    answer = await attempt(taken)
        except GivenUp:
            raise Stalled(f"Nothing came out of {pair.name} for {patience_s:.1f} s.") from None
        except ToolkitError as error:
            self._judge(error, pair, before, progress)
            raise
        else:
            book.moved(pair)
            return answer
        finally:
            book.give_back(taken)

    def _judge(self, error: ToolkitError, pair: Pair, before: Moves, progress: Progress) -> None:
        """What an attempt's failure says about its pair."""
        book, now = self._book, self._clock.monotonic()
        suspected = book.is_suspect(pair)
        if isinstance(error, LegLost):
            self._on_lost(error.engine)
            return
        if isinstance(error, Busy):
            book.busy(pair, now)
        elif isinstance(error, TransferFailed):
            book.transfer_failed(pair, now)
        elif isinstance(error, OutOfTime):
            begun, prefilled = progress.dispatched_at, progress.prefill_done_at is not None
            if begun is None or now - begun < SUSPECT_AFTER_S or not book.quiet(pair, before, prefilled):
                return
            book.failed(pair)
        elif isinstance(error, EngineFailed):
            book.failed(pair)
        if book.is_suspect(pair) and not suspected:
            self._on_doubt()

    def _again(
        self, error: ToolkitError, tried: list[Pair], progress: Progress, deadline: float, ask: Ask
    ) -> float:
        """The wait before the next attempt. Raises the error where there is none; both are written down."""
        pair, now = tried[-1], self._clock.monotonic()
        left = isinstance(error, Stalled)  # decided, and granted, while there was no first token
        if progress.first_token_at is not None and not left:
            raise error
        cause = cause_of(error)
        other = self._has_other(tried, progress.choice, ask)
        granted: float | Refusal = 0.0
        if not left:
            granted = self._retries.ask(cause, progress.attempts, now=now, deadline=deadline, other=other)
        then = granted if isinstance(granted, Refusal) else "retried"
        progress.lost.append(
            Lost(pair, cause, str(error), then, progress.dispatched_at, now, progress.choice)
        )
        if not isinstance(granted, Refusal):
            return granted
        if cause is Cause.TRANSFER and not other:
            raise EngineUnavailable(
                f"{error.message} No other pair is in rotation.",
                retry_after_s=self._book.retry_after_s(now),
                internal=error.internal,
            ) from error
        raise error

    def _stalls(self, before: Moves, tried: list[Pair], progress: Progress, limits: Limits, ask: Ask) -> bool:
        """Whether to leave the pair for another one: nothing came out of it, and a retry is granted."""
        book, pair, prefilled = self._book, tried[-1], progress.prefill_done_at is not None
        if progress.first_token_at is not None or not book.quiet(pair, before, prefilled):
            return False
        if not book.is_suspect(pair):
            book.silent(pair, before, prefilled)
            self._on_doubt()
        if not self._has_other(tried, progress.choice, ask, sure=True):
            return False
        now, deadline = self._clock.monotonic(), limits.begin_by
        granted = self._retries.ask(Cause.STALLED, progress.attempts, now=now, deadline=deadline, other=True)
        return not isinstance(granted, Refusal)

    def _has_other(self, tried: list[Pair], choice: int, ask: Ask, sure: bool = False) -> bool:
        """Whether another pair serves it, with room for its KV."""
        decodes = ask.decodes(choice, self._book.serving_decodes)
        return self._book.has_other(tried, sure, ask.want, decodes)


def cause_of(error: ToolkitError) -> Cause:
    """The cause that a failed attempt's error stands for."""
    if isinstance(error, LegLost):
        return Cause.UNREACHABLE
    if isinstance(error, TransferFailed):
        return Cause.TRANSFER
    if isinstance(error, Stalled):
        return Cause.STALLED
    return Cause.BUSY if isinstance(error, Busy) else Cause.FAILED
