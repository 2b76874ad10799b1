"""Run a piece of work beside conditions that may end it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


async def guarded(work: Awaitable[T], *guards: Coroutine[Any, Any, None]) -> T:
    """The work's result. A guard that raises cancels the work, and its error is raised instead; guards end with the work."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(guard) for guard in guards]
            result = await work
            for task in tasks:
                task.cancel()
        return result
    except BaseExceptionGroup as failures:
        raise first_leaf(failures) from None


class GivenUp(Exception):
    """The block was left because `decide` said so."""


@contextlib.contextmanager
def given_up(after_s: float, decide: Callable[[], bool]) -> Iterator[None]:
    """Raises GivenUp out of the block, where `decide()` is true when the block has run so long.

    The block does not run on between the decision and its end (a guard's error comes a turn of the loop later).
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    decided = False

    def look() -> None:
        nonlocal decided
        decided = decide()
        if decided:
            task.cancel()

    timer = asyncio.get_running_loop().call_later(after_s, look)
    try:
        yield
    except asyncio.CancelledError:
        if decided and task.cancelling() - 1 <= before:
            raise GivenUp from None
        raise
    finally:
        timer.cancel()
        if decided:
            task.uncancel()


def first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first single exception in a group of groups."""
    return leaves(group)[0]


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Every single exception in a group of groups, in order; there is at least one."""
    found: list[BaseException] = []
    for failure in group.exceptions:
        found += leaves(failure) if isinstance(failure, BaseExceptionGroup) else [failure]
    return found
