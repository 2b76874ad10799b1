"""Run a piece of work beside conditions that may end it."""

import asyncio
from collections.abc import Awaitable, Coroutine
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


def first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first single exception in a group of groups."""
    return leaves(group)[0]


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Every single exception in a group of groups, in order; there is at least one."""
    found: list[BaseException] = []
    for failure in group.exceptions:
        found += leaves(failure) if isinstance(failure, BaseExceptionGroup) else [failure]
    return found
