"""The chat body: what is checked, what is written in, what passes untouched."""

import random

import orjson
import pytest

from serving import chat
from serving.engine_body import Rendezvous, compose
from serving.promise import Promise, promise
from toolkit.core.errors import CODES, InvalidRequest, TooLarge
from toolkit.core.sample import SloClass

BUDGETS = {SloClass.REALTIME: 0.8, SloClass.STANDARD: 3.0, SloClass.BATCH: 300.0}


def body(**fields):
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields})


def image_message(*urls):
    parts = [
        {"type": "image_url", "image_url": {"url": url, "detail": "high", "content_hash": "x"}}
        for url in urls
    ]
    return [{"role": "user", "content": [{"type": "text", "text": "what?"}, *parts]}]


def leg(composed, rid="d-1"):
    return orjson.loads(
        b"".join(composed.for_leg(0, rid=rid, bootstrap_host="h", bootstrap_port=1, bootstrap_room=2))
    )


def test_every_field_that_is_not_ours_reaches_the_engine_unchanged():
    """Sampling, stop, tools, response_format, seed, logprobs and unknown keys pass as they came."""
    fields = {
        "temperature": 0.25, "top_p": 0.5, "stop": ["a"], "seed": 7, "logprobs": True, "top_logprobs": 3, "max_tokens": 5,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
        "stream": True, "stream_options": {"include_usage": True}, "user": "u", "something_new": {"a": [1, None]},
    }  # fmt: skip
    request = chat.parse(body(**fields))

    sent = leg(compose(request, [], 99, "m"))

    assert {key: sent[key] for key in fields} == fields


def test_an_absent_max_tokens_gets_the_default_and_a_given_one_stays():
    """Both spellings of OpenAI count as given."""
    absent = leg(compose(chat.parse(body(max_completion_tokens=None)), [], 77, "m"))
    old = leg(compose(chat.parse(body(max_tokens=5)), [], 77, "m"))
    new = leg(compose(chat.parse(body(max_completion_tokens=6)), [], 77, "m"))

    assert absent["max_tokens"] == 77 and "max_completion_tokens" not in absent
    assert old["max_tokens"] == 5
    assert new["max_completion_tokens"] == 6 and "max_tokens" not in new


def test_several_choices_ask_for_one_each_and_get_seeds_of_their_own():
    """SGLang's own n > 1 hangs in PD; equal seeds would give equal answers."""
    composed = compose(chat.parse(body(n=3, seed=40)), [], 9, "m")

    sent = [
        orjson.loads(
            b"".join(composed.for_leg(i, rid="r", bootstrap_host="h", bootstrap_port=1, bootstrap_room=2))
        )
        for i in range(3)
    ]

    assert [one["n"] for one in sent] == [1, 1, 1]
    assert [one["seed"] for one in sent] == [40, 41, 42]


def test_images_are_replaced_in_their_places_and_the_clients_document_stays_whole():
    """Slot order is document order; the hash that a client claims for its bytes is not passed on."""
    request = chat.parse(body(messages=image_message("u1", "u2")))
    before = orjson.dumps(request.document)

    sent = leg(compose(request, ["p1", "p2"], 9, "m"))

    assert [part["image_url"] for part in sent["messages"][0]["content"][1:]] == [
        {"url": "p1", "detail": "high"},
        {"url": "p2", "detail": "high"},
    ]
    assert orjson.dumps(request.document) == before
    assert [slot.param for slot in request.images] == [
        "messages[0].content[1].image_url.url",
        "messages[0].content[2].image_url.url",
    ]


def test_both_legs_share_the_big_piece_and_differ_in_rid():
    """The prepared images are held once however many legs there are."""
    composed = compose(chat.parse(body()), [], 9, "m")

    first = composed.for_leg(0, rid="p-1", bootstrap_host="h", bootstrap_port=1, bootstrap_room=2)
    second = composed.for_leg(0, rid="d-1", bootstrap_host="h", bootstrap_port=1, bootstrap_room=2)

    assert first[0] is second[0]
    assert leg(composed, "p-1")["rid"] == "p-1"
    assert leg(composed)["bootstrap_room"] == 2


@pytest.mark.parametrize(
    ("raw", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_json", None),
        (b'{"messages": NaN}', "invalid_json", None),
        (b"{}", "invalid_request", "messages"),
        (body(messages=[]), "invalid_request", "messages"),
        (body(messages=["x"]), "invalid_request", "messages[0]"),
        (body(messages=[{"role": "user", "content": 3}]), "invalid_request", "messages[0].content"),
        (body(messages=[{"role": "user", "content": [3]}]), "invalid_request", "messages[0].content[0]"),
        (body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": "http://x"}]}]), "invalid_request", "messages[0].content[0].image_url"),
        (body(messages=[{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}]), "unsupported_media", "messages[0].content[0]"),
        (body(messages=[{"role": "user", "content": [{"type": "hologram"}]}]), "invalid_request", "messages[0].content[0].type"),
        (body(seed="x"), "invalid_request", "seed"),
        (body(seed=1 << 64 - 1), "invalid_request", "seed"),
        (body(top_logprobs=129), "invalid_request", "top_logprobs"),
        (body(top_k=1 << 40), "invalid_request", "top_k"),
        (body(min_tokens=-1), "invalid_request", "min_tokens"),
        (body(stop_token_ids=[512]), "invalid_request", "stop_token_ids"),
        (body(stop_token_ids=[True]), "invalid_request", "stop_token_ids"),
        (body(stop_token_ids=5), "invalid_request", "stop_token_ids"),
        (body(stop_regex="(a|a)*b"), "invalid_request", "stop_regex"),
        (body(data_parallel_rank=3), "invalid_request", "data_parallel_rank"),
        (body(n=17), "invalid_request", "n"),
        (body(n=0), "invalid_request", "n"),
        (body(n=True), "invalid_request", "n"),
        (body(max_tokens=-1), "invalid_request", "max_tokens"),
        (body(max_tokens="5"), "invalid_request", "max_tokens"),
        (body(stream="yes"), "invalid_request", "stream"),
        (body(rid="mine"), "invalid_request", "rid"),
        (body(bootstrap_room=1), "invalid_request", "bootstrap_room"),
        (body(input_ids=[1]), "invalid_request", "input_ids"),
    ],
)  # fmt: skip
def test_a_wrong_body_names_its_field(raw, code, param):
    """The error says which field to correct."""
    with pytest.raises(InvalidRequest) as refused:
        chat.parse(raw, vocabulary=512)

    assert (refused.value.code.code, refused.value.param) == (code, param)


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "soon", "", "99999999999", "9" * 5000, "１２"])
def test_a_budget_header_that_is_no_whole_number_of_milliseconds_is_refused(text):
    """A typo must not become no limit."""
    with pytest.raises(InvalidRequest):
        promise(None, text, SloClass.STANDARD, BUDGETS)


def test_the_promise_comes_from_the_headers_or_the_class():
    """The class sets the budget; the budget header overrides it."""
    assert promise(None, None, SloClass.STANDARD, BUDGETS) == Promise(SloClass.STANDARD, 3.0)
    assert promise("Realtime", None, SloClass.STANDARD, BUDGETS) == Promise(SloClass.REALTIME, 0.8)
    assert promise("batch", "250", SloClass.STANDARD, BUDGETS) == Promise(SloClass.BATCH, 0.25)


def test_rendezvous_ids_have_one_length_and_rooms_are_positive_63_bit():
    """SGLang aborts by prefix, so no rid may be the beginning of another."""
    rendezvous = Rendezvous(random.Random(1))
    rids = {rendezvous.rid() for _ in range(1000)}
    rooms = [rendezvous.room() for _ in range(1000)]

    assert len(rids) == 1000 and len({len(rid) for rid in rids}) == 1
    assert all(0 < room < 1 << 63 for room in rooms) and max(rooms) > 1 << 60


def test_every_code_has_a_sentence_that_says_what_to_do():
    """docs/errors.md is made from this table."""
    assert all(code.action.endswith(".") and 400 <= code.status < 600 for code in CODES.values())


def test_a_body_nested_too_deeply_is_the_callers_mistake():
    """It can be read and not be written again."""
    raw = b'{"messages":[{"role":"user","content":"hi"}],"extra":' + (b"[" * 300) + (b"]" * 300) + b"}"

    with pytest.raises(InvalidRequest, match="nested too deeply"):
        compose(chat.parse(raw), [], 1, "m")
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        chat.parse(raw.replace(b"extra", b"tools"))


def test_an_operator_can_open_a_closed_field():
    """Who knows its clients may trust their patterns."""
    assert chat.parse(body(stop_regex="a+"), allowed_fields=("stop_regex",)).document["stop_regex"] == "a+"


@pytest.mark.parametrize("kind", [[], {}, ["text"], None, 3])
def test_a_part_whose_type_is_no_text_is_told_so(kind):
    with pytest.raises(InvalidRequest, match=r"content\[0\]\.type must be"):
        chat.parse(body(messages=[{"role": "user", "content": [{"type": kind}]}]))


@pytest.mark.parametrize("field", ["model", "stream", "n", "top_k", "max_tokens", "seed"])
def test_a_message_shows_little_of_what_is_deep_or_large(field):
    """Writing all of it out took seconds, or passed the recursion limit."""
    fields = {"messages": [{"role": "user", "content": "hi"}]}
    deep = orjson.dumps(fields)[:-1] + b',"%b":' % field.encode() + b"[" * 900 + b"]" * 900 + b"}"
    large = orjson.dumps({**fields, field: [[]] * 100_000})
    for sent in (deep, large):
        with pytest.raises(InvalidRequest, match=f"'{field}' must be") as caught:
            chat.parse(sent)
        assert len(caught.value.message) < 300


def test_more_values_than_a_request_has_are_refused_unparsed():
    sent = b'{"messages": [' + b"[]," * 200_000 + b"[]]}"
    with pytest.raises(TooLarge, match="brackets, commas and colons"):
        chat.parse(sent)
