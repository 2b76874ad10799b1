"""Several choices of one request, merged."""

import asyncio

import orjson
import pytest

from serving.choices import Merger, add_usage, merge_progress, stream_all, whole_all
from serving.dispatch import Progress
from tests.serving.scripted_engine import completion, delta, event
from toolkit.core.errors import EngineFailed


def documents(text):
    return [orjson.loads(part[6:]) for part in text.decode().split("\n\n") if part and part != "data: [DONE]"]


def usage_event(completion_tokens):
    return event(
        {
            "id": "u",
            "choices": [],
            "usage": {
                "prompt_tokens": 7,
                "completion_tokens": completion_tokens,
                "total_tokens": 7 + completion_tokens,
            },
        }
    )


def test_streams_become_one_with_an_index_each_and_a_single_end():
    """Each choice keeps its own text; there is one id, one usage event, one [DONE]."""
    out = []

    async def one(index, forward):
        await forward(delta(f"word{index}"))
        await forward(delta(finish="stop") + usage_event(2 + index) + event("[DONE]"))

    async def forward(piece):
        out.append(piece)

    asyncio.run(stream_all(3, one, forward))
    merged = b"".join(out)
    texts = {
        choice["index"]: choice["delta"].get("content")
        for doc in documents(merged)
        for choice in doc["choices"]
        if choice["delta"]
    }

    assert texts == {0: "word0", 1: "word1", 2: "word2"}
    assert merged.count(b"data: [DONE]") == 1 and merged.endswith(b"data: [DONE]\n\n")
    assert [doc["usage"]["completion_tokens"] for doc in documents(merged) if not doc["choices"]] == [9]
    assert len({doc["id"] for doc in documents(merged) if doc["choices"]}) == 1


def test_the_first_failure_ends_all_choices():
    """No half set of choices is called an answer."""
    ended = []

    async def one(index):
        if index == 1:
            raise EngineFailed("decode broke")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(index)
        return b""

    with pytest.raises(EngineFailed):
        asyncio.run(whole_all(3, one))

    assert sorted(ended) == [0, 2]


def test_whole_answers_become_one_with_usage_added_up():
    """The prompt is counted once: it was one request."""

    async def one(index):
        return orjson.dumps(completion(f"text{index}", tokens=3))

    merged = orjson.loads(asyncio.run(whole_all(2, one)))

    assert [(choice["index"], choice["message"]["content"]) for choice in merged["choices"]] == [
        (0, "text0"),
        (1, "text1"),
    ]
    assert merged["usage"] == {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13}


def test_progress_is_merged_to_the_earliest_instants():
    """TTFT of the request is that of its first choice to speak."""
    into = Progress()

    merge_progress(
        [
            Progress(first_token_at=2.0, gaps_s=[0.1], token_events=2),
            Progress(first_token_at=1.0, token_events=3),
        ],
        into,
    )

    assert (into.first_token_at, into.gaps_s, into.token_events, into.usage) == (1.0, [0.1], 5, {})


def test_an_empty_merger_still_ends_its_stream():
    """[DONE] is what a client waits for."""
    assert Merger().end() == b"data: [DONE]\n\n"


def test_usage_without_details_adds_up():
    """Absent counts are zero."""
    assert add_usage([{}, {"completion_tokens": 2}]) == {"completion_tokens": 2, "total_tokens": 2}
