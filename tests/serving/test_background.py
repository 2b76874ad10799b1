"""What runs beside the requests never ends them."""

import asyncio

from serving.background import kept


def test_what_fails_is_told_and_begins_again(caplog):
    async def scenario():
        runs, third = [], asyncio.Event()

        async def run():
            runs.append(len(runs))
            if len(runs) == 1:
                raise AttributeError("nonsense from an engine")
            if len(runs) == 3:
                third.set()
                await asyncio.sleep(60.0)

        task = asyncio.create_task(kept("the watch", run, again_s=0.0))
        async with asyncio.timeout(5.0):
            await third.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    assert asyncio.run(scenario())
    assert [record.message for record in caplog.records] == ["the watch failed; it begins again in 0 s"]
