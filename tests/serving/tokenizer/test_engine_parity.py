"""Prompts are counted as SGLang's own front makes them: its request models, templates, tokenizers and image processors."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from serving.access.grid import grid_for
from serving.config import ModelConfig
from serving.engines import tiny_model
from serving.tokenizer.errors import Uncountable
from serving.tokenizer.prompt import load
from tests.serving.access.test_parity import engine_python
from tests.serving.tokenizer import folders
from tests.serving.tokenizer.conversations import Case, five_images, images, one_image, texts

SCRIPT = Path(__file__).with_name("engine_prompts.py")
ROOT = Path(__file__).parents[3]


def ours(folder: Path, cases: list[Case]) -> list[int | None]:
    grid = grid_for(ModelConfig(), folder)
    counter = load(folder, grid.family)
    counts: list[int | None] = []
    for case in cases:
        try:
            text = counter.count(case.document, len(case.images))
            counts.append(text + sum(grid.tokens(*size) for size in case.images))
        except Uncountable:
            counts.append(None)
    return counts


def theirs(asked: list[tuple[Path, list[Case]]]) -> list[list[int | None]]:
    request = [
        {"folder": str(folder), "requests": [case.document for case in cases]} for folder, cases in asked
    ]
    run = subprocess.run(
        [engine_python(), str(SCRIPT), str(ROOT / "serving" / "engines" / "cpu_host")],
        input=json.dumps(request),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    answers: list[list[int | None]] = json.loads(run.stdout)
    return answers


@pytest.mark.slow
def test_prompts_are_counted_as_sglang_makes_them(tmp_path: Path) -> None:
    """Qwen2, 2.5 and 3-VL, the tiny model, LLaVA-1.5, InternVL and a text model; what we count not, SGLang refuses."""
    python = engine_python()
    text, one = texts(), one_image()
    asked = [
        (folders.qwen(tmp_path / "two", model_type="qwen2_vl"), one + images(1, 3)),
        (folders.qwen(tmp_path / "two-five"), text + one + images(2, 6)),
        (folders.qwen(tmp_path / "three", model_type="qwen3_vl"), text + one + images(3, 4)),
        (tiny_model.ensure(tiny_model.cache_folder(None, os.environ), python), text + one + images(4, 4)),
        (folders.llava(tmp_path / "llava-hf"), text + one + five_images()),
        (folders.internvl(tmp_path / "internvl"), text + one + images(5, 2)),
        (folders.text(tmp_path / "text"), text),
    ]

    answers = theirs(asked)

    for (folder, cases), answer in zip(asked, answers, strict=True):
        counts = ours(folder, cases)
        wrong = [
            (folder.name, case.name, mine, real)
            for case, mine, real in zip(cases, counts, answer, strict=True)
            if mine != real
        ]
        assert wrong == []
        assert sum(count is not None for count in counts) >= len(cases) * 0.8, folder.name
