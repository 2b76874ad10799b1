"""What an engine's events mean."""

import pytest

from serving.stream import Kind, StreamReader, TransferFailed, has_content, read_whole, refusal
from toolkit.core.errors import Busy, EngineFailed, InvalidRequest


@pytest.mark.parametrize(
    ("delta", "token"),
    [
        ({"role": "assistant", "content": ""}, False),
        ({"role": "assistant"}, False),
        ({"content": None}, False),
        ({"content": "a"}, True),
        ({"reasoning_content": "hm"}, True),
        ({"tool_calls": [{"index": 0}]}, True),
    ],
)
def test_only_generated_content_is_a_token(delta, token):
    """A role-only chunk would make TTFT a lie."""
    assert has_content(delta) is token


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, InvalidRequest, "engine_rejected"),
        (413, InvalidRequest, "engine_rejected"),
        (422, InvalidRequest, "engine_rejected"),
        (429, Busy, "engine_busy"),
        (503, Busy, "engine_busy"),
        (408, EngineFailed, "engine_failed"),
        (500, EngineFailed, "engine_failed"),
        (404, InvalidRequest, "engine_rejected"),
    ],
)
def test_an_engines_status_says_whose_turn_it_is(status, kind, code):
    """The caller's mistake, backpressure, or a fault."""
    error = refusal("decode-0", status, {"message": "why"})

    assert isinstance(error, kind)
    assert error.code.code == code
    assert "why" in str(error)


@pytest.mark.parametrize("status", [429, 503, 500, 408])
def test_the_engines_own_words_are_the_operators_unless_they_are_about_the_request(status):
    """A client learns what to do; logs, the journal and traces learn what it was."""
    error = refusal(
        "decode-0", status, {"message": "KVTransferError(bootstrap_room=7): Decode transfer failed"}
    )

    assert "bootstrap_room" not in str(error.body("req-1"))
    assert "bootstrap_room=7" in str(error)


def test_the_engines_paths_and_input_are_cut_from_its_message():
    """SGLang's validation text goes on with file paths and the whole request."""
    error = refusal("d", 400, {"message": '1 validation error\n\n  File "/somewhere/x.py"'})

    assert error.message.endswith("1 validation error")


@pytest.mark.parametrize("document", [b"[1]", b"3", b'"x"'])
def test_an_event_that_is_no_object_is_a_failure(document):
    """Garbage is never passed on as an answer."""
    with pytest.raises(EngineFailed):
        StreamReader("d").read(document)


def test_comments_and_usage_move_nothing():
    """Keep-alive comments and the usage event after the end are neither tokens nor ends."""
    reader = StreamReader("d")

    assert reader.read(b"") is Kind.PREAMBLE
    reader.read(b'{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"length"}]}')
    assert reader.read(b'{"choices":[],"usage":{"completion_tokens":1}}') is Kind.AFTER
    assert reader.read(b"[DONE]") is Kind.DONE
    reader.end()
    assert reader.usage == {"completion_tokens": 1}


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"choices":[]}', b'{"choices":[{}]}', b"[]", b'{"choices":[{"finish_reason":null}]}'],
)
def test_a_whole_answer_must_be_whole(body):
    """Status 200 proves nothing."""
    with pytest.raises(EngineFailed):
        read_whole("d", body)


@pytest.mark.parametrize(
    ("message", "transfer"),
    [
        ("Prefill transfer failed for request rank=0 with exception KVTransferError(bootstrap_room=7): dead", True),
        ("Decode transfer failed for request rank=0", True),
        ("KV transfer failed", True),
        ("Prefill transfer failed for request rank=0 with exception KVTransferError: Aborted by AbortReq.", False),
        ("Prefill bootstrap failed for request rank=0 with exception KVTransferError", False),
        ("Internal error", False),
    ],
)  # fmt: skip
def test_a_failed_transfer_is_told_from_other_failures(message, transfer):
    """Only it may have put the session on SGLang's blacklist; an abort of our own has not."""
    error = refusal("decode-0", 500, {"error": {"message": message}})

    assert type(error) is (TransferFailed if transfer else EngineFailed)
