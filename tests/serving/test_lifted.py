"""Long data URIs stay where they came, and nobody can tell but by the time it takes."""

import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import chat
from serving.engine_body import compose
from serving.lifted import LEAST_BYTES, Lifted, as_text
from toolkit.core.errors import InvalidRequest

LONG = "data:image/png;base64," + "QUJD" * (LEAST_BYTES // 4)


def body(*parts: Any, **fields: Any) -> bytes:
    return orjson.dumps({"messages": [{"role": "user", "content": list(parts)}], **fields})


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def text_of(url: str | Lifted) -> str:
    return as_text(url[:])


def test_a_long_uri_is_left_in_the_body() -> None:
    """The image is the very bytes that came; the parsed document does not have them."""
    sent = body({"type": "text", "text": "what is this?"}, image(LONG), image("https://example.com/a.png"))
    request = chat.parse(sent)
    long, short = (slot.url for slot in request.images)
    assert isinstance(long, Lifted)
    assert (text_of(long), short) == (LONG, "https://example.com/a.png")
    assert len(orjson.dumps(request.document)) < 1000
    composed = b"".join(compose(request, ["a", "b"], 8, "m").for_leg(0, rid="r", bootstrap_host="h", bootstrap_port=1, bootstrap_room=1))  # fmt: skip
    assert b"lifted" not in composed


def test_equal_ones_are_one_key() -> None:
    other = LONG[:-5] + "B" + LONG[-4:]
    first, second, third = (
        slot.url for slot in chat.parse(body(image(LONG), image(LONG), image(other))).images
    )
    assert first == second != third
    assert len({first, second, third}) == 2


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "text", "text": LONG}],
        [{"type": "text", "text": LONG}, image(LONG)],
        [{"type": "text", "text": f'quoted: "{LONG}"'}, image(LONG)],
        [{"type": "text", "text": "lifted:0:0"}, image(LONG)],
        [{**image(LONG), "note": LONG}],
    ],
    ids=["text", "text and image", "quoted in a text", "our own name", "beside the url"],
)
def test_a_long_uri_elsewhere_reaches_the_engine_as_it_came(parts: list[Any]) -> None:
    sent = body(*parts)
    request = chat.parse(sent)
    urls = [text_of(slot.url) for slot in request.images]
    assert urls == [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    kept = [(part.get("text"), part.get("note")) for part in request.document["messages"][0]["content"]]
    assert kept == [(part.get("text"), part.get("note")) for part in parts]


def test_escapes_are_left_to_the_parser() -> None:
    r"""PHP writes \/ for /."""
    sent = body(image(LONG)).replace(b"image/png", b"image\\/png", 1)
    assert [text_of(slot.url) for slot in chat.parse(sent).images] == [LONG]


@pytest.mark.parametrize("cut", [-1, -2, -3, -4, -10, -LEAST_BYTES // 2, -LEAST_BYTES - 40])
def test_what_is_cut_off_is_not_json(cut: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat.parse(body(image(LONG))[:cut])
    assert caught.value.code.code == "invalid_json"


@pytest.mark.parametrize(
    ("before", "after"), [(b"x", b""), (b'"x"', b""), (b"", b"x"), (b"", b'"x"'), (b"\\", b""), (b'\\"', b"")]
)
def test_a_lifted_string_never_makes_wrong_json_right(before: bytes, after: bytes) -> None:
    quoted = orjson.dumps(LONG)
    sent = body(image(LONG)).replace(quoted, before + quoted + after)
    with pytest.raises(InvalidRequest) as caught:
        chat.parse(sent)
    assert caught.value.code.code == "invalid_json"


_WORD = st.sampled_from(
    ["hi", LONG, LONG[:-4], "lifted:0:1", 'a "quote', "é", LONG + '"', "\\", LONG + "\\n"]
)
_PART = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, _WORD), st.builds(image, _WORD), st.builds(lambda x: {"type": x}, _WORD)
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(_PART, max_size=5), st.dictionaries(_WORD, _WORD, max_size=2))
def test_parsed_as_if_nothing_were_lifted(parts: list[Any], fields: dict[str, str]) -> None:
    """Same images, same texts, same errors, whatever stands where."""
    sent = body(*parts, **fields)

    def outcome(longest: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("serving.lifted.LEAST_BYTES", longest)
            try:
                request = chat.parse(sent)
            except InvalidRequest as error:
                return error.message
        urls = [text_of(slot.url) for slot in request.images]
        return urls, compose(request, urls, 8, "m").open_json, request.text_bytes

    assert outcome(LEAST_BYTES) == outcome(1 << 60)


def test_twenty_megabytes_are_parsed_in_a_blink() -> None:
    """The parser never sees them: several times less CPU time than it would take."""
    sent = bytearray(body(image(LONG + "QUJD" * 5_000_000)))

    def seconds(parse: Any) -> float:
        return min(_spent(lambda: parse(sent)) for _ in range(5))

    assert seconds(chat.parse) < seconds(orjson.loads) / 2


def _spent(work: Any) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began
