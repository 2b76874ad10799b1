"""What is counted, and what is not; that the counts are SGLang's is test_engine_parity.py's matter."""

from pathlib import Path
from typing import Any

import pytest

from serving.tokenizer.errors import Uncountable
from serving.tokenizer.prompt import PromptCounter, load
from tests.serving.tokenizer import folders
from tests.serving.tokenizer.conversations import asked, picture, words

HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> PromptCounter:
    return load(folders.qwen(tmp_path_factory.mktemp("models") / "m"), "qwen2_5_vl")


def test_an_image_adds_its_markers_and_nothing_else(qwen: PromptCounter) -> None:
    """Start and end markers are text tokens here; the image's own are the grid's."""
    text = qwen.count({"messages": asked(words("Describe the picture."))}, 0)
    one = qwen.count({"messages": asked(words("Describe the picture."), picture((30, 30)))}, 1)
    three = qwen.count({"messages": asked(*[picture((30, 30))] * 3, words("Describe the picture."))}, 3)

    assert (one - text, three - text) == (2, 6)


def test_fields_of_no_effect_change_nothing(qwen: PromptCounter) -> None:
    """Sampling is not part of the prompt."""
    more = {"temperature": 0.5, "max_tokens": 7, "stop": ["x"], "response_format": {"type": "json_object"}}

    assert qwen.count({**HI, **more}, 0) == qwen.count(HI, 0)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mm_processor_kwargs": {"max_pixels": 9}}, "mm_processor_kwargs"),
        ({"messages": asked(picture((30, 30)), words("<image>"))}, "takes for an image"),
    ],
)
def test_what_may_change_the_images_is_not_counted(qwen: PromptCounter, fields: Any, why: str) -> None:
    """Rather an estimate than a wrong count."""
    with pytest.raises(Uncountable, match=why):
        qwen.count({"messages": asked(picture((30, 30))), **fields}, 1)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"messages": [{"role": "guest", "content": "x"}]}, "no role"),
        ({"messages": [{"role": "developer", "content": "x"}]}, "no developer here"),
        ({"chat_template_kwargs": {"documents": []}}, "documents"),
        ({"reasoning_effort": "a lot"}, "refuse"),
        ({"tools": [{"type": "function"}]}, "refuse"),
        (
            {
                "tools": [
                    {"function": {"name": "f", "parameters": {"properties": {"a": {"type": "varchar(9)"}}}}}
                ]
            },
            "rewrites",
        ),
    ],
)
def test_what_the_engine_would_refuse_or_rewrite_is_not_counted(
    qwen: PromptCounter, fields: Any, why: str
) -> None:
    """The reason is in the message."""
    with pytest.raises(Uncountable, match=why):
        qwen.count({**HI, **fields}, 0)


def test_a_text_that_is_too_long_is_not_counted(qwen: PromptCounter) -> None:
    """As a whole, and where it offers no place to cut."""
    with pytest.raises(Uncountable, match="characters"):
        qwen.count({"messages": [{"role": "user", "content": "ship " * 500_000}]}, 0)
    with pytest.raises(Uncountable, match="pieces"):
        qwen.count({"messages": [{"role": "user", "content": "x" * 200_000}]}, 0)


def test_a_count_ends_with_its_time(qwen: PromptCounter) -> None:
    """So that a thread is free again when nobody waits for its answer."""
    with pytest.raises(Uncountable, match="too long"):
        qwen.count({"messages": [{"role": "user", "content": "ship sails " * 10_000}]}, 0, 1e-4)


def test_a_deep_tool_is_not_counted(qwen: PromptCounter) -> None:
    """No depth of nesting leaves the error tree."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"items": deep}

    with pytest.raises(Uncountable):
        qwen.count({**HI, "tools": [{"function": {"name": "f", "parameters": deep}}]}, 0)


def test_llava_counts_one_image(tmp_path: Path) -> None:
    """SGLang takes the first of several, so their number of tokens is not the sum."""
    llava = load(folders.llava(tmp_path / "m"), "llava")
    parts = [picture((30, 30)), picture((30, 30)), words("hi")]

    assert llava.count({"messages": asked(*parts[1:])}, 1) > 0
    with pytest.raises(Uncountable, match="first"):
        llava.count({"messages": asked(*parts)}, 2)
