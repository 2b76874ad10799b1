"""The exact number of a prompt's text tokens, as SGLang 0.5.23 comes to it (serving_chat.py:2138, base_processor.py:872)."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving.tokenizer import internvl
from serving.tokenizer.errors import Uncountable
from serving.tokenizer.folder import PromptFiles, read
from serving.tokenizer.messages import TemplateInput, template_input
from serving.tokenizer.pieces import WHOLE_CHARS, can_cut, pieces
from serving.tokenizer.template import ChatTemplate

MOST_CHARS = 2_000_000
"""Longest prompt that is read."""
MOST_CPU_S = 3.0
"""Longest CPU time on one prompt, looked at between pieces of the template's output and of the text."""

QWEN_IMAGE = re.compile(r"<\|vision_start\|>(?:<\|image_pad\|>)+<\|vision_end\|>|<image>")
"""What the engine takes for an image in a Qwen prompt, whoever wrote it (qwen_vl.py:395)."""

LLAVA_MOST = 16
"""Images of a request above which SGLang pools LLaVA's tokens (models/llava.py:93)."""

IMAGE_OPTIONS = ("mm_processor_kwargs", "images_config", "max_dynamic_patch", "min_dynamic_patch")

Ids = list[list[int]]
"""Token ids, by the piece of text that they were read from."""


class PromptCounter:
    """Counts prompts of one model. `family`: as ModelConfig.family. Safe to use from several threads."""

    def __init__(self, files: PromptFiles, family: str) -> None:
        self._tokenizer = files.tokenizer
        self._special = dict(files.special_tokens)
        self._image_token_id = files.image_token_id
        self._template = None if files.template is None else ChatTemplate(files.template)
        self._multimodal = family != "text"
        self._llava = family == "llava"
        self._cuts = can_cut(files.tokenizer)
        self._begins_with = self._tokenizer.encode("", add_special_tokens=True).ids

    def count(self, document: Mapping[str, Any], images: int, cpu_s: float = MOST_CPU_S) -> int:
        """Tokens of the prompt but for the image tokens: placeholders are left out, start and end markers are in.

        document: the chat request as it goes to the engine; images: how many it has. Raises Uncountable, after `cpu_s` too.
        """
        ends = time.thread_time() + min(cpu_s, MOST_CPU_S)
        if images:
            self._check_images(document, images)
        if self._template is None:
            ids = self._read(internvl.prompt(document, images), ends)
            self._check_places(ids, images)
            return _length(ids) + len(self._begins_with) - images
        given = template_input(document, self._template.content_format)
        rendered = self._render(self._template, given, ends)
        ids = self._read(rendered, ends)
        if given.prefix:
            ids = self._append(ids, self._read(given.prefix, ends))
        tokens = _length(ids)
        if self._multimodal and (images or self._begins_with):
            tokens = self._again(ids, rendered if not given.prefix else "", images, ends)
        return tokens - images

    def _render(self, template: ChatTemplate, given: TemplateInput, ends: float) -> str:
        attempts: list[list[dict[str, Any]] | None] = [given.tools]
        if given.tools is not None:  # as SGLang: some templates want a tool's function alone
            attempts.append([tool["function"] for tool in given.tools])
        why = ""
        for tools in attempts:
            variables = {
                "messages": given.messages,
                "tools": tools,
                "documents": None,
                "add_generation_prompt": True,
                **self._special,
                **given.options,
            }
            try:
                return template.render(variables, most_chars=MOST_CHARS, ends=ends)
            except Uncountable:
                raise
            except Exception as error:
                why = f"{error!s:.100}"
        raise Uncountable(f"the template refuses the messages: {why}")

    def _read(self, text: str, ends: float) -> Ids:
        found: Ids = []
        for piece in pieces(text) if self._cuts else (text,):
            if len(piece) > WHOLE_CHARS:
                raise Uncountable(f"it cannot be read in pieces of {WHOLE_CHARS} characters")
            if time.thread_time() > ends:
                raise Uncountable("reading it took too long")
            found.append(self._tokenizer.encode(piece, add_special_tokens=False).ids)
        return found

    def _append(self, ids: Ids, prefix: Ids) -> Ids:
        """The beginning of an answer is read by itself, and what the tokenizer puts before a text is taken off again."""
        begin = self._special.get("bos_token")
        first = self._begins_with + prefix[0]
        if first and begin is not None and first[0] == self._tokenizer.token_to_id(begin):
            first = first[1:]
        if not self._cuts:
            return [ids[0] + first]
        return [*ids, first, *prefix[1:]]

    def _again(self, ids: Ids, rendered: str, images: int, ends: float) -> int:
        """The engine makes a text of the ids and reads it again: Qwen's processor, which begins no text twice, or its own
        tokenizer, which does."""
        text = "".join(self._tokenizer.decode(piece, skip_special_tokens=False) for piece in ids)
        if images and not self._llava and len(QWEN_IMAGE.findall(text)) != images:
            raise Uncountable("the text holds what the engine takes for an image")
        if text != rendered:
            ids = self._read(text, ends)
        self._check_places(ids, images)
        begin = self._special.get("bos_token")
        begun = images and not self._llava and begin is not None and text.startswith(begin)
        return _length(ids) + (0 if begun else len(self._begins_with))

    def _check_places(self, ids: Ids, images: int) -> None:
        number = self._image_token_id
        places = sum(piece.count(number) for piece in ids) if number is not None else 0
        too_many = places > images and not self._llava  # LLaVA fills the first ones
        if images and (places < images or too_many):
            raise Uncountable("the prompt's placeholders are not those of its images")

    def _check_images(self, document: Mapping[str, Any], images: int) -> None:
        if self._image_token_id is None:
            raise Uncountable("the model's config names no image token")
        for name in IMAGE_OPTIONS:
            if document.get(name) is not None:
                raise Uncountable(f"{name!r} may change the images' tokens")
        if self._llava and images > 1 and not (_as_several(document) and images <= LLAVA_MOST):
            raise Uncountable("SGLang takes the first of several images for LLaVA, or pools their tokens")


def load(folder: Path, family: str) -> PromptCounter:
    """Reads the folder. Takes up to seconds of CPU. Raises Uncountable, OSError, ValueError, jinja2.TemplateError."""
    return PromptCounter(read(folder, multimodal=family != "text"), family)


def _as_several(document: Mapping[str, Any]) -> bool:
    """Whether a part says that LLaVA's images are several; otherwise SGLang takes the first (processors/llava.py:252)."""
    contents = (message.get("content") for message in document["messages"])
    return any(
        part.get("modalities") == "multi-images"
        for content in contents
        if isinstance(content, list)
        for part in content
    )


def _length(ids: Ids) -> int:
    return sum(map(len, ids))
