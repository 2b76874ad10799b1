"""What a model's folder says about its prompts: tokenizer, special tokens, chat template.

Read as transformers 5 and SGLang 0.5.23 read it: a multimodal model's template is its processor's, then the tokenizer's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from serving.tokenizer.conversation import INTERNVL, built_in
from serving.tokenizer.errors import Uncountable

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
QWEN_CLASSES = frozenset({"Qwen2Tokenizer", "Qwen2TokenizerFast"})
QWEN_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_CLASSES = frozenset({"LlamaTokenizer", "LlamaTokenizerFast"})


@dataclass(frozen=True, slots=True)
class PromptFiles:
    """A folder's files, read. special_tokens: by the names that templates use; template: None for InternVL's conversation."""

    tokenizer: Tokenizer
    special_tokens: Mapping[str, str]
    template: str | None
    image_token_id: int | None


def read(folder: Path, *, multimodal: bool) -> PromptFiles:
    """Reads, and compiles the tokenizer: seconds of CPU for a large vocabulary.

    Raises Uncountable that says what is missing, OSError and ValueError for files that cannot be read.
    """
    config = _json(folder / "config.json")
    why = built_in(str(folder), config)
    if why is not None:
        raise Uncountable(f"SGLang takes a template of its own for {folder} ({why})")
    settings = _json(folder / "tokenizer_config.json")
    tokenizer = _tokenizer(folder, settings)
    special = _special_tokens(folder, settings)
    if config.get("model_type") == INTERNVL:
        language = config.get("llm_config") or {}
        if language.get("architectures") == ["InternLM2ForCausalLM"]:
            raise Uncountable(f"{folder}: InternLM2's prompts are made in another way")
        return PromptFiles(tokenizer, special, None, tokenizer.token_to_id("<IMG_CONTEXT>"))
    template = (_processor_template(folder) if multimodal else None) or _tokenizer_template(folder, settings)
    if not template:
        raise Uncountable(f"{folder} has no chat template")
    image_token = config.get("image_token_id", config.get("image_token_index"))
    return PromptFiles(tokenizer, special, template, image_token if isinstance(image_token, int) else None)


def _tokenizer(folder: Path, settings: Mapping[str, Any]) -> Tokenizer:
    file, parts = folder / "tokenizer.json", (folder / "vocab.json", folder / "merges.txt")
    try:
        if file.is_file():
            tokenizer = Tokenizer.from_file(str(file))
        elif all(part.is_file() for part in parts) and settings.get("tokenizer_class") in QWEN_CLASSES:
            tokenizer = _qwen(*map(str, parts))
        else:
            raise Uncountable(f"{folder} has no tokenizer.json")
    except Uncountable:
        raise
    except Exception as error:  # the library raises plain Exception
        raise ValueError(f"{folder}: its tokenizer cannot be read: {error}") from error
    if settings.get("tokenizer_class") in LLAMA_CLASSES:
        _as_llama(tokenizer, settings)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    more = settings.get("added_tokens_decoder")
    for number, token in sorted((more or {}).items(), key=lambda item: int(item[0])):
        if token["content"] not in known and tokenizer.id_to_token(int(number)) in (None, token["content"]):
            flags = {key: bool(value) for key, value in token.items() if key != "content"}
            tokenizer.add_tokens([AddedToken(token["content"], **flags)])
    return tokenizer


def _qwen(vocabulary: str, merges: str) -> Tokenizer:
    """As transformers 5 makes it of these two files (tokenization_qwen2.py)."""
    tokenizer = Tokenizer(models.BPE.from_file(vocabulary, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _as_llama(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
    """transformers 5 builds these classes' tokenizers anew and keeps the file's vocabulary; SGLang puts back the file's
    pre-tokenizer, where it has another kind (srt/utils/hf_transformers/tokenizer.py:228)."""
    begin = "always" if settings.get("legacy") else "first"
    if settings.get("add_prefix_space") is False:
        begin = "never"
    tokenizer.normalizer = None
    if tokenizer.pre_tokenizer is None or isinstance(tokenizer.pre_tokenizer, pre_tokenizers.Metaspace):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=begin, split=False)


def _special_tokens(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in (_json(folder / "special_tokens_map.json"), settings):
        for name in NAMED_TOKENS:
            value = source.get(name)
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                found[name] = value
    return found


def _processor_template(folder: Path) -> str | None:
    in_config = _json(folder / "processor_config.json").get("chat_template")
    if in_config:
        return _first(in_config)
    legacy = _json(folder / "chat_template.json").get("chat_template")
    return _first(legacy) if legacy else _first(_files(folder))


def _tokenizer_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    return _first(_files(folder)) or _first(settings.get("chat_template"))


def _files(folder: Path) -> dict[str, str]:
    """Template files by name, in the order in which transformers meets them."""
    found = {path.stem: _text(path) for path in (folder / "chat_templates").glob("*.jinja")}
    default = folder / "chat_template.jinja"
    return found | {"default": _text(default)} if default.is_file() else found


def _first(templates: object) -> str | None:
    """Of several named templates SGLang takes the first (template_manager.py:420)."""
    if isinstance(templates, list):
        templates = {one["name"]: one["template"] for one in templates}
    if isinstance(templates, dict):
        templates = next(iter(templates.values()), None)
    return templates if isinstance(templates, str) else None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _json(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    value = json.loads(_text(path))
    return value if isinstance(value, dict) else {}
