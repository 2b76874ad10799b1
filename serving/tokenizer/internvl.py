"""InternVL's prompt: SGLang 0.5.23 takes a conversation template of its own for it, internvl-2-5 (conversation.py:871), and puts the images'
tokens into the text itself (multimodal/processors/internvl.py:391)."""

from collections.abc import Mapping
from typing import Any

from serving.tokenizer.errors import Uncountable

SYSTEM = "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。"  # noqa: RUF001
END = "<|im_end|>\n"
ASSISTANT = "<|im_start|>assistant"
CONTEXT, PLACE = "<IMG_CONTEXT>", "<image>"
SEAT = "<<<__IMG_PLACEHOLDER__>>>"
MANY = 16
"""Images of one message from which SGLang takes them for a video, and puts a line break before each text."""


def prompt(document: Mapping[str, Any], images: int) -> str:
    """The text that is tokenized, each image's tokens as one. Raises Uncountable for what SGLang refuses."""
    try:
        text = _conversation(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise Uncountable(f"the engine would refuse the body ({type(error).__name__})") from error
    if not images:
        return text
    missing = images - text.count(PLACE)
    if missing > 0:
        at = text.rfind(ASSISTANT)
        at = len(text) if at < 0 else at
        text = text[:at] + "\n" + "\n".join([PLACE] * missing) + "\n" + text[at:]
    if text.count(PLACE) != images or "<video>" in text:
        raise Uncountable("the text holds what the engine takes for an image")
    # Both the conversation's mark and the inserted one are taken for the image's place, and only as many as there are images
    # are filled: what is left of the second ones stays in the prompt as text.
    text = text.replace(PLACE, SEAT).replace(CONTEXT, SEAT)
    return text.replace(SEAT, f"<img>{CONTEXT}</img>", images)


def _conversation(document: Mapping[str, Any]) -> str:
    system, turns = SYSTEM, []
    for message in document["messages"]:
        role, content = message["role"], message.get("content")
        role = role if role == "user" else role.lower()
        if role == "user":
            turns.append(("user", content if isinstance(content, str) else _parts(content)))
        elif role == "system":
            system = _single(content, system)
        elif role == "assistant":
            turns.append(("assistant", _single(content, "")))
        else:
            raise Uncountable(f"InternVL's conversation has no role {role!r:.40}")
    text = f"<|im_start|>system\n{system}{END}"
    for role, content in turns:
        text += f"<|im_start|>{role}\n{content}{END}" if content else f"<|im_start|>{role}\n"
    if document.get("continue_final_message") and turns and turns[-1][0] == "assistant":
        return text.removesuffix(END)
    return f"{text}{ASSISTANT}\n"


def _parts(parts: list[Mapping[str, Any]]) -> str:
    text, many = "", sum(part["type"] == "image_url" for part in parts) > MANY
    for part in parts:
        if part["type"] == "image_url":
            if part["image_url"].get("max_dynamic_patch") is not None:
                raise Uncountable("'max_dynamic_patch' changes the images' tokens")
            text = f"{CONTEXT}\n{text}"
        else:
            text += ("\n" if many else "") + part["text"]
    return text


def _single(content: object, absent: str) -> str:
    if isinstance(content, list):
        if len(content) != 1 or content[0]["type"] != "text":
            raise Uncountable("InternVL's system and assistant messages are a single text")
        return str(content[0]["text"])
    return content if isinstance(content, str) else absent
