"""InternVL's prompt, as SGLang writes it; that its numbers are SGLang's is test_engine_parity.py's matter."""

from typing import Any

import pytest

from serving.tokenizer.errors import Uncountable
from serving.tokenizer.internvl import SYSTEM, prompt
from tests.serving.tokenizer.conversations import asked, picture, words

IMAGE = picture((30, 30))


def test_a_conversation() -> None:
    """The last system message counts; an empty message is a role alone."""
    messages = [
        {"role": "system", "content": "Old."},
        {"role": "system", "content": [words("Be brief.")]},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": ""},
    ]

    assert prompt({"messages": messages}, 0) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<|im_start|>assistant\n"
    )
    assert SYSTEM in prompt({"messages": asked(words("Hi"))}, 0)


def test_an_answer_to_go_on_with() -> None:
    """It stays open."""
    messages = [*asked(words("Hi")), {"role": "assistant", "content": "I see"}]

    assert prompt({"messages": messages, "continue_final_message": True}, 0).endswith("assistant\nI see")


def test_each_image_has_two_places_and_one_is_filled() -> None:
    """SGLang adds places to those that its conversation has, and the rest stays as text."""
    text = prompt({"messages": asked(words("What?"), IMAGE, IMAGE)}, 2)

    filled, seat = "<img><IMG_CONTEXT></img>", "<<<__IMG_PLACEHOLDER__>>>"
    assert f"user\n{filled}\n{filled}\nWhat?<|im_end|>\n\n{seat}\n{seat}\n<|im_start|>assistant\n" in text


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "tool", "content": "x"}, "no role"),
        ({"role": "system", "content": [words("a"), words("b")]}, "single text"),
        ({"role": "user", "content": None}, "refuse"),
        ({"role": "user", "content": [IMAGE, words("<image> <image>")]}, "takes for an image"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "", "max_dynamic_patch": 2}}]},
            "max_dynamic_patch",
        ),
    ],
)  # fmt: skip
def test_what_is_not_counted(message: dict[str, Any], why: str) -> None:
    """SGLang refuses it, or the images' tokens would be others."""
    with pytest.raises(Uncountable, match=why):
        prompt({"messages": [message]}, 1)
