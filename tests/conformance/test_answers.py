"""What both legs answer to a question: fields, order of events, refusals."""

import base64
import socket
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.conformance.engines import Answer, Pair
from tests.live.service import PHOTOS

LEGS = ("prefill", "decode")
USAGE = {
    "prompt_tokens",
    "total_tokens",
    "completion_tokens",
    "prompt_tokens_details",
    "reasoning_tokens",
    "completion_tokens_details",
}
CHINA = "data:image/jpeg;base64," + base64.b64encode((PHOTOS / "china.jpg").read_bytes()).decode()


def picture(url: str) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "user", "content": parts}]


def test_a_whole_answer(pair: Pair) -> None:
    """Decode's is the answer; prefill says its first token and stops."""
    prefill, decode = pair.ask()

    for leg, tokens in ((prefill, 1), (decode, 4)):
        assert leg.status == 200
        assert leg.headers["content-type"] == "application/json"
        assert set(leg.json) == {"id", "object", "created", "model", "choices", "usage", "metadata"}
        (choice,) = leg.json["choices"]
        assert set(choice) == {"index", "message", "logprobs", "finish_reason", "matched_stop"}
        assert set(choice["message"]) == {"role", "content", "reasoning_content"}
        assert choice["finish_reason"] == "length"
        assert set(leg.json["usage"]) == USAGE
        assert leg.json["usage"]["completion_tokens"] == tokens
    assert decode.json["choices"][0]["message"]["content"].startswith(
        prefill.json["choices"][0]["message"]["content"]
    )
    assert prefill.json["id"].startswith("conf-") and prefill.json["id"] != decode.json["id"]


def test_a_stream(pair: Pair) -> None:
    """The role first and alone, then content, then the finish without content, then [DONE]."""
    for leg in pair.ask(stream=True):
        assert leg.status == 200
        assert leg.headers["content-type"].startswith("text/event-stream")
        assert leg.events[-1] == "[DONE]"
        first, *middle, last = leg.deltas
        assert first["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
        assert all(set(one["delta"]) == {"reasoning_content", "content"} for one in middle)
        assert [one["finish_reason"] for one in leg.deltas[:-1]] == [None] * (len(leg.deltas) - 1)
        assert last["delta"] == {"reasoning_content": None} and last["finish_reason"] == "length"
        assert all(
            set(one) == {"index", "delta", "logprobs", "finish_reason", "matched_stop"} for one in leg.deltas
        )


def test_usage_comes_when_it_is_asked_for(pair: Pair) -> None:
    """In an event of its own, before [DONE]."""
    for leg, tokens in zip(
        pair.ask(stream=True, stream_options={"include_usage": True}), (1, 4), strict=True
    ):
        usage = leg.events[-2]
        assert usage["choices"] == []
        assert set(usage["usage"]) == USAGE and usage["usage"]["completion_tokens"] == tokens


def test_a_picture_is_counted(pair: Pair) -> None:
    """By the same grid: the photo of 640x427 is 247 tokens in a model of at most 200,704 pixels."""
    for leg in pair.ask(messages=picture(CHINA)):
        details = leg.json["usage"]["prompt_tokens_details"]
        assert details == {"cached_tokens": details["cached_tokens"], "image_tokens": 247}
        assert leg.json["usage"]["prompt_tokens"] > 247 + 2


def test_logprobs(pair: Pair) -> None:
    """One entry per token, with the alternatives that were asked for."""
    _, decode = pair.ask(logprobs=True, top_logprobs=2, max_tokens=2)
    content = decode.json["choices"][0]["logprobs"]["content"]

    assert len(content) == 2
    for entry in content:
        assert set(entry) == {"token", "bytes", "logprob", "top_logprobs"}
        assert entry["logprob"] < 0 and len(entry["top_logprobs"]) == 2
        assert all(set(one) == {"token", "bytes", "logprob"} for one in entry["top_logprobs"])


def test_a_stop_string_ends_the_answer(pair: Pair) -> None:
    """It is not part of the text, and the answer says which it was."""
    _, plain = pair.ask(max_tokens=24, ignore_eos=True)
    text = plain.json["choices"][0]["message"]["content"]
    stop = next(char for char in text if char.isascii() and char.isalpha())
    _, decode = pair.ask(max_tokens=24, ignore_eos=True, stop=[stop])
    choice = decode.json["choices"][0]

    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", stop)
    assert choice["message"]["content"] == text[: text.index(stop)]


def test_the_same_question_has_the_same_answer(pair: Pair) -> None:
    """At temperature 0."""
    first, again = (pair.ask(max_tokens=8)[1].json["choices"][0]["message"]["content"] for _ in range(2))

    assert first == again


def test_any_model_name_is_taken(pair: Pair) -> None:
    """And said back: telling that it is wrong is the gateway's part."""
    assert [leg.json["model"] for leg in pair.ask(model="other")] == ["other", "other"]


REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "too many tokens": ({"max_tokens": 1_000_000}, "BadRequestError", "Requested token count exceeds the model's maximum"),
    "temperature": ({"temperature": -3}, "BadRequestError", "temperature must be a non-negative finite number, got -3.0."),
    "messages are no list": ({"messages": "x"}, "Bad Request", "1 validation error:\n  {'type': 'list_type', 'loc': ('body', 'messages')"),
    "a broken picture": (
        {"messages": picture("data:image/jpeg;base64,AAAA")},
        "BadRequestError",
        "An exception occurred while loading IMAGE data at index 0: Error while loading data ImageData(url='data:image/jpeg;base64,AAAA'",
    ),
}  # fmt: skip


def assert_refused(leg: Answer, kind: str, message: str) -> None:
    assert leg.status == 400
    assert leg.headers["content-type"] == "application/json"
    assert set(leg.json) == {"object", "message", "type", "param", "code"}
    assert (leg.json["object"], leg.json["type"], leg.json["param"], leg.json["code"]) == (
        "error",
        kind,
        None,
        400,
    )
    assert leg.json["message"].startswith(message)


def test_a_missing_room_is_told_inside_a_200_stream(pair: Pair) -> None:
    """The scheduler refuses it, and by then a stream has begun; without one it is a 400."""
    message = "Invalid request: Disaggregated request received without bootstrap room id. req.rid='conf-"
    for leg in pair.ask(bootstrap_room=None, stream=True):
        error, done = leg.events
        assert leg.status == 200 and done == "[DONE]"
        assert (error["error"]["type"], error["error"]["code"]) == ("BAD_REQUEST", 400)
        assert error["error"]["message"].startswith(message)
    for leg in pair.ask(bootstrap_room=None):
        assert_refused(leg, "BadRequestError", message)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("what", REFUSALS)
def test_refusals(pair: Pair, what: str, stream: bool) -> None:
    """400 on both legs, streamed or not, in the same shape."""
    fields, kind, message = REFUSALS[what]
    for leg in pair.ask(**fields, stream=stream):
        assert_refused(leg, kind, message)


@pytest.mark.parametrize(
    "fields",
    [
        {"image_data": [{"format": "processor_output", "url": "x"}]},
        {"image_data": {"format": "precomputed_embedding", "url": "x"}},
        {"image_data": {"url": CHINA, "image_grid_thw": 3}},
    ],
    ids=["processor_output", "precomputed_embedding", "grid"],
)
def test_the_generate_gate(pair: Pair, fields: dict[str, Any]) -> None:
    """Preprocessed pixels do not pass POST /generate, and the refusal is one string."""
    body = {"text": "hi", "sampling_params": {"max_new_tokens": 1}, **pair.rendezvous(), **fields}
    for role in LEGS:
        answer = httpx.post(f"{pair.url(role)}/generate", json=body, timeout=30)
        assert answer.status_code == 400
        assert isinstance(answer.json()["error"], str)


@pytest.mark.parametrize("fields", [{"priority": "high"}, {"rid": 7}], ids=["priority", "rid"])
def test_the_generate_schema(pair: Pair, fields: dict[str, Any]) -> None:
    """Wrong types are refused in the shape of chat-completions."""
    body = {"text": "hi", "sampling_params": {"max_new_tokens": 1}, **pair.rendezvous(), **fields}
    for role in LEGS:
        answer = httpx.post(f"{pair.url(role)}/generate", json=body, timeout=30)
        assert_refused(Answer(answer.status_code, answer.headers, answer.content), "Bad Request", "")


def test_generate_streams_the_text_so_far(pair: Pair) -> None:
    """Each event holds all of it; the last says why it ended."""
    prompt = {"text": "Hello world", "sampling_params": {"max_new_tokens": 4, "temperature": 0}}
    _, decode = pair.ask("/generate", stream=True, **prompt)
    *events, done = decode.events
    texts = [event["text"] for event in events]

    assert done == "[DONE]"
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert events[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 4}
    assert {"id", "finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens"} <= set(
        events[-1]["meta_info"]
    )


def test_an_http2_preface_is_answered_at_once(pair: Pair) -> None:
    """Routers try HTTP/2 first; an engine that only waits would cost them a timeout."""
    host, port = pair.decode.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert connection.recv(100).startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))


@pytest.mark.parametrize("url", ["/etc/hostname", "file:///etc/hostname"])
def test_the_simulated_engine_reads_no_file(simulated_pair: Pair, url: str) -> None:
    """The real one would: SGLang opens what stands there (common.py:2192)."""
    for leg in simulated_pair.ask(messages=picture(url)):
        assert leg.status == 400
        assert "reads no local file" in leg.json["message"]


def test_every_simulated_answer_says_so(simulated_pair: Pair) -> None:
    """In a header, in its information pages, as a metric."""
    for role in LEGS:
        for path in ("/ready", "/server_info", "/v1/chat/completions", "/nowhere"):
            assert simulated_pair.get(role, path).headers["x-simulated"] == "1"
        for path in ("/server_info", "/model_info"):
            page = simulated_pair.get(role, path).json()
            assert page["simulated"] is True and page["model_path"] == "simulated"
        assert "\ntoolkit_simulated 1.0\n" in simulated_pair.get(role, "/metrics").text
