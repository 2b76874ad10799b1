"""The image geometry of the served model, and how it is read from the model's folder.

The folder is read as transformers reads it: "image_processor" in `processor_config.json` wins over
`preprocessor_config.json`; in it `min_pixels` and `max_pixels` win over `size`. Explicit ModelConfig values
win over both.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from serving.access.grids import InternVLGrid, LlavaGrid, QwenGrid, TextGrid
from serving.config import ModelConfig
from toolkit.core.errors import UsageFault

# config.json's model_type -> ModelConfig.family. The later Qwen types use the Qwen-VL image processor with
# the patch of Qwen3-VL.
FAMILIES: Mapping[str, str] = {
    "qwen2_vl": "qwen2_vl",
    "qwen2_5_vl": "qwen2_5_vl",
    "qwen3_vl": "qwen3_vl",
    "qwen3_vl_moe": "qwen3_vl",
    "qwen3_5": "qwen3_vl",
    "qwen3_5_moe": "qwen3_vl",
    "llava": "llava",
    "internvl_chat": "internvl_chat",
}

# The defaults of transformers' Qwen2VLImageProcessor, for keys that the model's file leaves out.
_QWEN_MIN_PIXELS, _QWEN_MAX_PIXELS = 56 * 56, 28 * 28 * 1280
_QWEN_PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16}
_QWEN_MERGE = 2
# For Qwen2-VL, SGLang 0.5.23 passes a size of its own, which wins over the file's `size` but not over its min_pixels and
# max_pixels (srt/utils/hf_transformers/processor.py:304).
_SGLANG_SIZE = {"qwen2_vl": {"shortest_edge": 3136, "longest_edge": 1_003_520}}


class ImageGrid(Protocol):
    """Pure image geometry of one served model. Sizes are pixels, after EXIF orientation."""

    @property
    def family(self) -> str:
        """As ModelConfig.family, never auto."""
        ...

    def target_size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) to hand over. Raises InvalidRequest where the processor would refuse the image."""
        ...

    def tokens(self, width: int, height: int) -> int:
        """Image tokens of a source of this size in the prompt, without the start and end markers."""
        ...

    def within(self, tokens: int) -> "ImageGrid | None":
        """The same with about so many tokens an image at most; None where the model has no such sizes."""
        ...


def grid_for(model: ModelConfig, model_path: Path | None) -> ImageGrid:
    """The grid of the model in `model_path`, or of `model` alone where its files are elsewhere (None).

    Raises UsageFault that says what to set where the family or its pixel bounds cannot be told.
    """
    config = _read(model_path, "config.json")
    family = model.family if model.family != "auto" else _family(config, model_path)
    if family == "text":
        return TextGrid()
    if family == "llava":
        return _llava(config)
    if family == "internvl_chat":
        return _internvl(config)
    return _qwen(family, model, model_path)


def _family(config: Mapping[str, Any], model_path: Path | None) -> str:
    known = ", ".join(sorted({*FAMILIES.values(), "text"}))
    if not config:
        place = "the model's files are not here" if model_path is None else f"{model_path} has no config.json"
        raise UsageFault(
            f"how the model sizes images cannot be told: {place}. Say it: --set model.family=FAMILY, one of {known}; for the"
            " qwen ones also --set model.min_pixels=N --set model.max_pixels=N, as its preprocessor_config.json has them"
            " (Qwen2.5-VL-7B: 3136 and 12845056)."
        )
    model_type = str(config.get("model_type", ""))
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    if not any(key in config for key in ("vision_config", "visual", "mm_vision_tower", "thinker_config")):
        return "text"
    raise UsageFault(
        f"{model_path}/config.json: image sizes of model_type {model_type!r} are not known."
        f" Set model.family to the one that resizes alike: {known}."
    )


def _qwen(family: str, model: ModelConfig, model_path: Path | None) -> QwenGrid:
    processor = _image_processor(model_path)
    if processor is None and not (model.min_pixels and model.max_pixels):
        place = (
            "the model's files are not here"
            if model_path is None
            else f"{model_path} has no preprocessor_config.json"
        )
        raise UsageFault(
            f"the image bounds of this {family} model cannot be told: {place}. Set model.min_pixels and"
            " model.max_pixels to the values its processor uses."
        )
    found = processor or {}
    size = _SGLANG_SIZE.get(family) or found.get("size")
    size = size if isinstance(size, Mapping) else {}
    patch = found.get("patch_size") or _QWEN_PATCH[family]
    merge = found.get("merge_size") or _QWEN_MERGE
    smallest = model.min_pixels or found.get("min_pixels") or size.get("shortest_edge") or _QWEN_MIN_PIXELS
    largest = model.max_pixels or found.get("max_pixels") or size.get("longest_edge") or _QWEN_MAX_PIXELS
    grid = QwenGrid(
        family=family, factor=int(patch) * int(merge), min_pixels=int(smallest), max_pixels=int(largest)
    )
    if grid.min_pixels > grid.max_pixels or grid.max_pixels < grid.factor**2:
        raise UsageFault(
            f"model.min_pixels {grid.min_pixels} and model.max_pixels {grid.max_pixels} leave no image size:"
            f" the smallest image is {grid.factor}x{grid.factor}."
        )
    return grid


def _llava(config: Mapping[str, Any]) -> LlavaGrid:
    vision = _table(config, "vision_config")
    aspect = str(config.get("image_aspect_ratio") or "")
    if "anyres" in aspect:
        raise UsageFault(
            f"config.json: image_aspect_ratio {aspect!r} is not served; LLaVA-1.5 (square, pad) is."
        )
    return LlavaGrid(
        side=int(vision.get("image_size") or 336),
        patch=int(vision.get("patch_size") or 14),
        pad=aspect == "pad",
    )


def _internvl(config: Mapping[str, Any]) -> InternVLGrid:
    vision = _table(config, "vision_config")
    side = _first(config.get("force_image_size") or vision.get("image_size") or 448)
    patch = _first(vision.get("patch_size") or 14)
    per_tile = int((side // patch) ** 2 * float(config.get("downsample_ratio") or 0.5) ** 2)
    # SGLang cuts tiles of 448 whatever the configured image size is, and at most 12 of them.
    return InternVLGrid(tokens_per_tile=per_tile)


def _first(value: Any) -> int:
    return int(value[0] if isinstance(value, list) else value)


def _table(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key)
    return value if isinstance(value, Mapping) else {}


def _image_processor(model_path: Path | None) -> Mapping[str, Any] | None:
    combined = _read(model_path, "processor_config.json").get("image_processor")
    if isinstance(combined, Mapping):
        return combined
    return _read(model_path, "preprocessor_config.json") or None


def _read(folder: Path | None, name: str) -> Mapping[str, Any]:
    """The JSON object in the file, empty where there is none. Raises UsageFault where it cannot be read."""
    if folder is None or not (folder / name).is_file():
        return {}
    try:
        value = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageFault(f"{folder / name}: cannot be read as JSON ({error}).") from error
    if not isinstance(value, dict):
        raise UsageFault(f"{folder / name}: not a JSON object.")
    return value
