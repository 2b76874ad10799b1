"""For which folders SGLang 0.5.23 takes a conversation template of its own in place of the model's (conversation.py:1111).

It goes by the whole path, so a Qwen model below `/data/check-points/` is served with the template of another model.
"""

import re
from collections.abc import Mapping
from typing import Any

MODEL_TYPES = frozenset(
    {
        "deepseek_vl_v2",
        "multi_modality",
        "phi4mm",
        "minicpmv",
        "minicpmo",
        "moss_vl",
        "deepseek-ocr",
        "unlimited-ocr",
        "paddleocr_vl",
        "whisper",
    }
)
FIRST = r"\bpoints\b|moss.*vl"
PATHS = (
    FIRST + r"|internvl|janus|vicuna|llava-v1\.5|llava-next-video-7b|deepseek.*vl2"
    r"|llava-v1\.6-34b|llava-v1\.6-yi-34b|llava-next-video-34b|llava-onevision-qwen2"
    r"|minicpm-[vo](?!-4[._][67])|phi-4-multimodal|deepseek-ocr|unlimited|paddleocr|whisper"
)
INTERNVL = "internvl_chat"
"""The model_type whose conversation is followed (internvl.py); two paths come before it."""


ENCODED = ("DeepseekV4", "GlmMoeDsa", "Glm5Next", "Inkling", "KimiK3", "MiniMaxM3")
"""In the architecture's name: SGLang writes these prompts in Python (chat_encoding.py:20)."""


def built_in(path: str, config: Mapping[str, Any]) -> str | None:
    """What in the path or the model's config makes SGLang take a template that is not followed here."""
    model_type = config.get("model_type")
    if model_type in MODEL_TYPES:
        return f"model_type {model_type}"
    for architecture in config.get("architectures") or ():
        if any(name in architecture for name in ENCODED):
            return f"architecture {architecture}"
    found = re.search(FIRST if model_type == INTERNVL else PATHS, path, re.IGNORECASE)
    return f"{found[0]!r} in its path" if found else None
