"""A result holds what was asked and answered, and no image and no URL of one."""

from typing import Any

import orjson
import pytest

from serving.chat import parse
from serving.result import MOST_SAID_BYTES, Result
from toolkit.core.sample import Outcome, Sample, SloClass, Timeline, WorkloadClass


def sample(stream: bool) -> Sample:
    return Sample(
        "req-1",
        0.0,
        WorkloadClass.IMAGE_SHORT,
        SloClass.STANDARD,
        Outcome.COMPLETED,
        200,
        Timeline(),
        stream=stream,
    )


def asked(*urls: str) -> Result:
    parts: list[dict[str, Any]] = [{"type": "text", "text": "what?"}]
    parts += [{"type": "image_url", "image_url": {"url": url, "detail": "high"}} for url in urls]
    body = {"model": "m", "user": "u", "messages": [{"role": "user", "content": parts}]}
    digests = [bytes([number]) * 32 for number in range(len(urls))]
    return Result(parse(orjson.dumps(body)), digests)


def written(result: Result, stream: bool = True) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(result.document(sample(stream)))
    return document


def event(*choices: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps({"id": "x", "choices": choices}) + b"\n\n"


def delta(index: int = 0, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"index": index, "delta": fields, "finish_reason": finish}


def test_images_are_named_by_their_digests_and_everything_else_is_as_it_came() -> None:
    result = asked("data:image/png;base64,SECRET", "https://host/x?signature=SECRET")

    document = written(result)

    assert document["request"] == {
        "model": "m",
        "user": "u",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what?"},
                    {"type": "image_url", "image_url": {"url": "sha256:" + "00" * 32, "detail": "high"}},
                    {"type": "image_url", "image_url": {"url": "sha256:" + "01" * 32, "detail": "high"}},
                ],
            }
        ],
    }
    assert "SECRET" not in str(document)
    assert (document["request_id"], document["sample"]["outcome"]) == ("req-1", "completed")


def test_a_stream_is_put_together_by_choice() -> None:
    result = asked()
    result.add(
        event(delta(0, role="assistant", content="")) + event(delta(0, content="I", reasoning_content=None))
    )
    result.add(event(delta(1, role="assistant", content="You "), delta(0, content=" see")))
    result.add(event(delta(1, finish="length", content="see"), delta(0, finish="stop")))
    result.add(event() + b"data: [DONE]\n\n")

    assert written(result)["answer"] == {
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "I see"}, "finish_reason": "stop"},
            {"index": 1, "message": {"role": "assistant", "content": "You see"}, "finish_reason": "length"},
        ],
        "truncated": False,
    }


def test_tool_calls_are_put_together_by_their_place() -> None:
    result = asked()
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}
    other = {"index": 1, "id": "call_2", "type": "function", "function": {"name": "go", "arguments": "{}"}}
    result.add(event(delta(role="assistant", tool_calls=[first])))
    result.add(event(delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}])))
    result.add(event(delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}, other])))

    (choice,) = written(result)["answer"]["choices"]

    assert choice["message"]["tool_calls"] == [
        {**first, "function": {"name": "look", "arguments": '{"a":1}'}},
        other,
    ]


def test_a_whole_answer_is_kept_without_its_log_probabilities() -> None:
    result = asked()
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    result.add(orjson.dumps({"choices": [{**choice, "logprobs": {"content": [1] * 9}}], "usage": {}}))

    assert written(result, stream=False)["answer"]["choices"] == [choice]


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_broke_off_is_what_came_of_it(stream: bool) -> None:
    assert written(asked(), stream)["answer"] == {"choices": [], "truncated": False}


def test_what_is_held_of_one_answer_is_bounded() -> None:
    result = asked()
    piece = event(delta(content="x" * 1_000_000))
    for _ in range(20):
        result.add(piece)

    document = written(result)

    assert document["answer"]["truncated"]
    assert len(document["answer"]["choices"][0]["message"]["content"]) == 7_000_000
    assert result.size < MOST_SAID_BYTES + 10_000
