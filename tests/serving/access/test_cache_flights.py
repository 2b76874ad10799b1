"""Work that many ask for at once: done once, given up only when nobody is left."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from serving.access.single_flight import Begin, SingleFlight


class Work:
    """Runs until told; notes what became of it."""

    def __init__(self, begins: bool = False) -> None:
        self.begins = begins
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.runs = 0
        self.cancelled = 0

    async def __call__(self, begin: Begin) -> str:
        self.runs += 1
        if self.begins:
            begin()
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def run(scenario: Callable[[SingleFlight[str, str]], Awaitable[None]]) -> None:
    async def main() -> None:
        flights: SingleFlight[str, str] = SingleFlight()
        await scenario(flights)
        await asyncio.sleep(0)
        assert len(flights) == 0

    asyncio.run(main())


async def asking(flights: SingleFlight[str, str], work: Work, times: int) -> list[asyncio.Task[str]]:
    tasks = [asyncio.create_task(flights.join("key", work).wait()) for _ in range(times)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_a_hundred_ask_and_one_works() -> None:
    """All get the same answer."""

    async def scenario(flights: SingleFlight[str, str]) -> None:
        work = Work()
        tasks = await asking(flights, work, 100)
        assert "key" in flights
        work.answer.set_result("done")

        assert await asyncio.gather(*tasks) == ["done"] * 100
        assert work.runs == 1

    run(scenario)


def test_a_failure_is_told_to_all_and_forgotten() -> None:
    """Who asks next begins anew."""

    async def scenario(flights: SingleFlight[str, str]) -> None:
        work = Work()
        tasks = await asking(flights, work, 3)
        work.answer.set_exception(ValueError("bad"))
        assert [str(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == ["bad"] * 3

        again = Work()
        (task,) = await asking(flights, again, 1)
        again.answer.set_result("good")
        assert await task == "good"

    run(scenario)


def test_waiters_that_leave_do_not_take_the_work_along() -> None:
    """Cancelled or out of time, the first who asked included."""

    async def scenario(flights: SingleFlight[str, str]) -> None:
        work = Work()
        first, second, third = await asking(flights, work, 3)
        first.cancel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await flights.join("key", work).wait()
        second.cancel()
        await asyncio.wait([first, second])
        work.answer.set_result("done")

        assert await third == "done"
        assert (work.runs, work.cancelled) == (1, 0)

    run(scenario)


def test_the_last_to_leave_takes_it_along() -> None:
    """When the waiter has ended, so has its work; who comes then begins anew."""

    async def scenario(flights: SingleFlight[str, str]) -> None:
        work = Work()
        tasks = await asking(flights, work, 2)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert (work.cancelled, "key" in flights) == (1, False)

        again = Work()
        (task,) = await asking(flights, again, 1)
        again.answer.set_result("done")
        assert (await task, again.runs) == ("done", 1)

    run(scenario)


def test_work_that_cannot_be_stopped_goes_on_for_whoever_comes() -> None:
    """Nobody is left, then somebody is."""

    async def scenario(flights: SingleFlight[str, str]) -> None:
        work = Work(begins=True)
        (task,) = await asking(flights, work, 1)
        task.cancel()
        await asyncio.wait([task])
        (late,) = await asking(flights, work, 1)
        work.answer.set_result("done")

        assert (await late, work.runs, work.cancelled) == ("done", 1, 0)

    run(scenario)


def test_a_failure_that_nobody_waits_for_is_silent() -> None:
    """No warning from the event loop about an exception that was never retrieved."""

    async def scenario(flights: SingleFlight[str, str]) -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        work = Work(begins=True)
        (task,) = await asking(flights, work, 1)
        task.cancel()
        await asyncio.wait([task])
        work.answer.set_exception(ValueError("bad"))
        while len(flights):
            await asyncio.sleep(0)
        del task, work

        assert complaints == []

    run(scenario)


def test_close_ends_everything() -> None:
    """Even what cannot be stopped is not waited for."""

    async def scenario(flights: SingleFlight[str, str]) -> None:
        work = Work(begins=True)
        tasks = await asking(flights, work, 2)
        await flights.close()
        await flights.close()
        await asyncio.wait(tasks)

        assert all(task.cancelled() for task in tasks)

    run(scenario)
