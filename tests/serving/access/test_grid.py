"""Sizes and token counts of every family, and how the family is found."""

import json
import random
from pathlib import Path

import pytest

from serving.access.grid import grid_for
from serving.access.grids import InternVLGrid, LlavaGrid, QwenGrid
from serving.config import ModelConfig
from toolkit.core.errors import InvalidRequest, UsageFault

QWEN_DEFAULT = QwenGrid("qwen2_vl", 28, 56 * 56, 1280 * 28 * 28)
QWEN_HUB = QwenGrid("qwen2_5_vl", 28, 3136, 12_845_056)
QWEN3 = QwenGrid("qwen3_vl", 32, 65_536, 16_777_216)
TINY = QwenGrid("qwen2_vl", 28, 3136, 16 * 28 * 28)

# SGLang's own functions, and the processors of transformers, on the same sizes.
COUNTS = {
    (224, 224): (64, 64, 64, 2560),
    (336, 336): (144, 144, 100, 2560),
    (448, 448): (256, 256, 196, 2560),
    (640, 360): (299, 299, 220, 2304),
    (1024, 1024): (1369, 1225, 1024, 2560),
    (1280, 720): (1196, 1196, 880, 2304),
    (1920, 1080): (2691, 1222, 2040, 2304),
    (3840, 2160): (10549, 1222, 8160, 2304),
    (8000, 6000): (16170, 1230, 16170, 3328),
    (300, 900): (352, 352, 252, 3328),
}


def sizes(count: int = 200, seed: int = 7) -> list[tuple[int, int]]:
    stream = random.Random(seed)
    drawn = ((stream.randint(20, 2600), stream.randint(20, 2600)) for _ in range(count))
    return [size for size in drawn if max(size) / min(size) < 100]


@pytest.mark.parametrize("size", COUNTS)
def test_token_counts_follow_sglang(size: tuple[int, int]) -> None:
    """Qwen2.5-VL with the hub's bounds and with the class defaults, Qwen3-VL, InternVL, LLaVA-1.5."""
    hub, default, three, internvl = COUNTS[size]

    assert QWEN_HUB.tokens(*size) == hub
    assert QWEN_DEFAULT.tokens(*size) == default
    assert QWEN3.tokens(*size) == three
    assert InternVLGrid().tokens(*size) == internvl
    assert LlavaGrid().tokens(*size) == 576


@pytest.mark.parametrize(
    "grid",
    [QWEN_DEFAULT, QWEN_HUB, QWEN3, TINY, LlavaGrid(), LlavaGrid(pad=True), InternVLGrid()],
    ids=["qwen2", "qwen2.5 hub", "qwen3", "tiny", "llava", "llava pad", "internvl"],
)
def test_prepared_size_is_kept_by_the_processor(grid: QwenGrid | LlavaGrid | InternVLGrid) -> None:
    """A second resize changes nothing, and the count of the source is the count of the result."""
    for size in sizes():
        target = grid.target_size(*size)

        assert grid.target_size(*target) == target
        assert grid.tokens(*target) == grid.tokens(*size)


def test_qwen_rounds_half_to_even() -> None:
    """Python's round: 42 pixels are 1.5 patches and become 2, 70 are 2.5 and become 2."""
    assert QWEN_DEFAULT.target_size(280, 42) == (280, 56)
    assert QWEN_DEFAULT.target_size(280, 70) == (280, 56)


@pytest.mark.parametrize("size", [(2010, 10), (10, 2010), (8200, 41)])
def test_qwen_refuses_side_ratios_above_200(size: tuple[int, int]) -> None:
    """Also where only the processor's own result has such a ratio: it would raise on what we hand over."""
    with pytest.raises(InvalidRequest) as caught:
        QWEN_HUB.target_size(*size)

    assert caught.value.code.code == "image_invalid"


def test_equal_bounds_still_give_a_size() -> None:
    """A model that is held at one area takes every image, though its rule never settles."""
    fixed = QwenGrid("qwen2_vl", 28, 50_176, 50_176)

    for size in sizes(50):
        width, height = fixed.target_size(*size)
        assert (width % 28, height % 28) == (0, 0)
        assert 40 <= fixed.tokens(*size) <= 80


def test_llava_scales_the_short_side_or_the_long_one() -> None:
    """The engine cuts the middle square from a scaled image, or fills it up where the model says pad."""
    assert LlavaGrid().target_size(640, 480) == (448, 336)
    assert LlavaGrid(pad=True).target_size(480, 640) == (252, 336)
    with pytest.raises(InvalidRequest):
        LlavaGrid().target_size(1, 150)


def folder(path: Path, **files: object) -> Path:
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def test_qwen_bounds_from_the_preprocessor_file(tmp_path: Path) -> None:
    """min_pixels and max_pixels, as Qwen2.5-VL's file has them."""
    processor = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}
    path = folder(tmp_path, config={"model_type": "qwen2_5_vl"}, preprocessor_config=processor)

    assert grid_for(ModelConfig(), path) == QWEN_HUB


def test_qwen_bounds_from_size(tmp_path: Path) -> None:
    """shortest_edge and longest_edge are areas, as in Qwen3-VL's file."""
    size = {"shortest_edge": 65536, "longest_edge": 16777216}
    processor = {"size": size, "patch_size": 16, "merge_size": 2}
    path = folder(tmp_path, config={"model_type": "qwen3_vl_moe"}, preprocessor_config=processor)

    assert grid_for(ModelConfig(), path) == QWEN3


def test_qwen2_vl_has_the_size_that_sglang_gives_it(tmp_path: Path) -> None:
    """SGLang passes its own size for Qwen2-VL: the file's `size` does not count, its min_pixels and max_pixels do."""
    processor: dict[str, object] = {"size": {"shortest_edge": 784, "longest_edge": 12_845_056}}
    path = folder(tmp_path, config={"model_type": "qwen2_vl"}, preprocessor_config=processor)

    assert grid_for(ModelConfig(), path) == QwenGrid("qwen2_vl", 28, 3136, 1_003_520)

    folder(tmp_path, preprocessor_config={**processor, "max_pixels": 12544})
    assert grid_for(ModelConfig(), path) == TINY


def test_combined_processor_file_wins(tmp_path: Path) -> None:
    """transformers prefers processor_config.json's image_processor, so it is preferred here."""
    path = folder(
        tmp_path,
        config={"model_type": "qwen2_vl"},
        processor_config={"image_processor": {"min_pixels": 3136, "max_pixels": 12544}},
        preprocessor_config={"min_pixels": 1, "max_pixels": 999_999},
    )

    assert grid_for(ModelConfig(), path) == TINY


def test_configured_bounds_win(tmp_path: Path) -> None:
    """What the operator sets is what the engine was told too."""
    path = folder(tmp_path, config={"model_type": "qwen2_vl"}, preprocessor_config={"max_pixels": 999_999})

    assert grid_for(ModelConfig(min_pixels=3136, max_pixels=12544), path) == TINY


def test_families_without_files() -> None:
    """Fronting engines elsewhere works with the family and its bounds set."""
    qwen = ModelConfig(family="qwen3_vl", min_pixels=65536, max_pixels=16777216)

    assert grid_for(qwen, None) == QWEN3
    assert grid_for(ModelConfig(family="llava"), None) == LlavaGrid()
    assert grid_for(ModelConfig(family="internvl_chat"), None) == InternVLGrid()
    assert grid_for(ModelConfig(family="text"), None).family == "text"


def test_llava_and_internvl_from_their_config(tmp_path: Path) -> None:
    """Token counts come from the vision tower's sizes."""
    llava = {
        "model_type": "llava",
        "image_aspect_ratio": "pad",
        "vision_config": {"image_size": 224, "patch_size": 16},
    }
    assert grid_for(ModelConfig(), folder(tmp_path, config=llava)) == LlavaGrid(224, 16, pad=True)

    vision = {"image_size": 448, "patch_size": [14, 14]}
    internvl = {
        "model_type": "internvl_chat",
        "force_image_size": 448,
        "downsample_ratio": 0.5,
        "vision_config": vision,
    }
    assert grid_for(ModelConfig(), folder(tmp_path, config=internvl)) == InternVLGrid()


def test_model_without_vision_takes_text_only(tmp_path: Path) -> None:
    """An image for it is the caller's mistake."""
    grid = grid_for(ModelConfig(), folder(tmp_path, config={"model_type": "qwen2"}))

    assert grid.family == "text"
    with pytest.raises(InvalidRequest):
        grid.tokens(10, 10)


@pytest.mark.parametrize(
    ("model", "files", "named"),
    [
        (ModelConfig(), None, "model.family"),
        (ModelConfig(family="qwen2_vl"), None, "model.max_pixels"),
        (ModelConfig(), {}, "model.family"),
        (ModelConfig(), {"config": {"model_type": "qwen2_vl"}}, "model.max_pixels"),
        (ModelConfig(), {"config": {"model_type": "new_vl", "vision_config": {}}}, "model.family"),
        (ModelConfig(), {"config": {"model_type": "llava", "image_aspect_ratio": "anyres"}}, "anyres"),
        (ModelConfig(), {"config": ["not a table"]}, "config.json"),
        (ModelConfig(family="qwen2_vl", min_pixels=9000, max_pixels=8000), None, "model.min_pixels"),
    ],
)
def test_what_cannot_be_told_is_asked_for(
    model: ModelConfig, files: dict[str, object] | None, named: str, tmp_path: Path
) -> None:
    """The message names the key to set, or the file that is wrong."""
    with pytest.raises(UsageFault, match=named):
        grid_for(model, None if files is None else folder(tmp_path, **files))
