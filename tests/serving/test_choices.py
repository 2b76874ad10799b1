"""Several choices of one request, merged."""

import asyncio

import orjson
import pytest

from serving.attempt import Progress
from serving.choices import Merger, add_usage, merge_progress, stream_all, whole_all
from serving.engines.simulated.dialect import SSE_DONE, ChatWriter
from serving.engines.simulated.prompt import Ask, Rendezvous
from serving.engines.simulated.words import Answer
from toolkit.core.errors import EngineFailed


def documents(text):
    return [orjson.loads(part[6:]) for part in text.decode().split("\n\n") if part and part != "data: [DONE]"]


def engine(tokens=2, seed=0):
    """How SGLang's dialect writes an answer."""
    answer = Answer(seed=seed, tokens=tokens, reason="stop")
    ask = Ask("x", "m", True, True, 7, 0, answer, Rendezvous("", None, None))
    return ChatWriter(ask, f"id-{seed}", 0)


def test_streams_become_one_with_an_index_each_and_a_single_end():
    """Each choice keeps its own text; there is one id, one usage event, one [DONE]."""
    out = []

    async def one(index, forward):
        said = engine(seed=index)
        await forward(said.content(f"word{index}", 1))
        await forward(said.finish("stop") + said.usage(2 + index) + SSE_DONE)

    async def forward(piece):
        out.append(piece)

    asyncio.run(stream_all(3, one, forward))
    merged = b"".join(out)
    texts = {
        choice["index"]: choice["delta"].get("content")
        for doc in documents(merged)
        for choice in doc["choices"]
        if "content" in choice["delta"]
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
        return orjson.dumps(engine(3, seed=index).whole("stop", 3))

    merged = orjson.loads(asyncio.run(whole_all(2, one)))

    assert [(choice["index"], choice["message"]["content"]) for choice in merged["choices"]] == [
        (index, Answer(index, 3, "stop").shown(3)) for index in range(2)
    ]
    assert merged["usage"]["completion_tokens"] == 6
    assert (merged["usage"]["prompt_tokens"], merged["usage"]["total_tokens"]) == (7, 13)


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
