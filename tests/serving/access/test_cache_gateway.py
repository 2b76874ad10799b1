"""The cache as the gateway shows it."""

import asyncio
from pathlib import Path
from typing import Any

from tests.serving.access import pictures
from tests.serving.access.test_data_uri import data_uri
from tests.serving.rig import Rig, chat, records, rig

URI = data_uri(pictures.saved(pictures.arrow(), "PNG"))


def about(uri: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": uri}}]
    return chat(messages=[{"role": "user", "content": parts}])


def seen(made: Rig) -> tuple[float | None, ...]:
    """(hits, misses, bytes, entries) of the memory tier."""
    made.gateway.status.metrics()
    events = (
        made.metric("toolkit_image_cache_total", tier="memory", result=result) for result in ("hit", "miss")
    )
    sizes = (made.metric(f"toolkit_image_cache_{what}", tier="memory") for what in ("bytes", "entries"))
    return (*events, *sizes)


def test_the_second_request_hits_and_the_engine_gets_the_same_picture(tmp_path: Path) -> None:
    """Also in the metrics, with the bytes that are held."""

    async def scenario() -> None:
        async with rig(tmp_path) as made:
            for _ in range(2):
                assert (await made.ask(about(URI))).status == 200
            sent = [
                call.body["messages"][0]["content"][1]["image_url"]["url"]
                for call in made.legs["prefill-0"].calls
            ]
            hits, misses, taken, entries = seen(made)

            assert (hits, misses, entries) == (1, 1, 1)
            assert sent[0] == sent[1]
            assert taken is not None and len(sent[0]) < taken < len(sent[0]) + 2000

    asyncio.run(scenario())


def test_the_record_tells_where_each_image_was_found(tmp_path: Path) -> None:
    """Made anew, made once for two at a time, or remembered."""

    async def scenario() -> None:
        async with rig(tmp_path) as made:
            await asyncio.gather(*(made.ask(about(URI)) for _ in range(2)))
            await made.ask(about(URI))

    asyncio.run(scenario())

    assert sorted(record["images"][0]["cache"] for record in records(tmp_path)) == ["", "joined", "memory"]


def test_a_text_request_leaves_no_trace_in_it(tmp_path: Path) -> None:
    """Neither counted nor kept."""

    async def scenario() -> None:
        async with rig(tmp_path) as made:
            assert (await made.ask()).status == 200

            assert seen(made) == (None, None, 0, 0)

    asyncio.run(scenario())
