"""Work that conditions may end."""

import asyncio

import pytest

from serving.guarded import GivenUp, given_up


def test_a_block_is_left_where_the_decision_says_so_and_goes_on_where_it_does_not():
    """Asked once, after the given time; a block that ends before is never asked."""

    async def scenario():
        asked = []
        with given_up(0.01, lambda: asked.append("no")):
            await asyncio.sleep(0.03)
        with given_up(5.0, lambda: asked.append("late")):
            await asyncio.sleep(0)
        with pytest.raises(GivenUp), given_up(0.01, lambda: True):
            await asyncio.Event().wait()
        return asked, asyncio.current_task().cancelling()

    assert asyncio.run(scenario()) == (["no"], 0)


def test_nothing_of_the_block_runs_after_the_decision():
    """What came in the same turn of the loop is not seen: else a token could be sent on a pair that was just given up."""

    async def scenario():
        came, seen = asyncio.get_running_loop().create_future(), []

        def decide():
            came.set_result("a token")
            return True

        with pytest.raises(GivenUp), given_up(0.01, decide):
            seen.append(await came)
        return seen

    assert asyncio.run(scenario()) == []


def test_a_cancellation_from_outside_stays_one():
    """Whoever cancels the task gets it cancelled, whatever was decided."""

    async def scenario():
        async def block():
            with given_up(0.01, lambda: bool(task.cancel()) or True):
                await asyncio.Event().wait()

        task = asyncio.create_task(block())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_a_failure_that_comes_of_the_leaving_is_raised_and_leaves_the_task_whole():
    """A block may fail while it is being left; the task can wait again afterwards."""

    async def scenario():
        async def fails_when_left():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("closing") from None

        with pytest.raises(ValueError, match="closing"), given_up(0.01, lambda: True):
            await fails_when_left()
        await asyncio.sleep(0)
        return asyncio.current_task().cancelling()

    assert asyncio.run(scenario()) == 0
