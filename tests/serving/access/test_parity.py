"""The engine's own processors, in the engine's environment, choose what our grids say."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from serving.access.grids import InternVLGrid, LlavaGrid, QwenGrid

SCRIPT = Path(__file__).with_name("engine_sizes.py")
ROOT = Path(__file__).parents[3]
TINY = 200_704
QWEN = [
    (14, 3136, TINY),
    (14, 3136, 1280 * 784),
    (14, 3136, 12_845_056),
    (14, 3136, 12_544),
    (16, 65_536, 16_777_216),
]


def engine_python() -> str:
    python = Path(os.environ.get("TOOLKIT_ENGINE_PYTHON") or ROOT / ".venv-engine" / "bin" / "python")
    if not python.is_file():
        pytest.skip(f"no engine environment at {python}: `make install` makes it")
    probe = subprocess.run(
        [
            python,
            "-c",
            "from importlib.metadata import version as v; v('sglang'), v('transformers'), v('torch')",
        ],
        capture_output=True,
    )
    if probe.returncode != 0:
        pytest.skip(f"the engine environment of {python} is not complete: `make install` completes it")
    return str(python)


@pytest.mark.slow
def test_grids_agree_with_the_engines_processors() -> None:
    """On 200 random sizes: the size and the tokens of transformers' Qwen processor, which SGLang runs, wherever that
    processor keeps its own result; InternVL: SGLang's tiles. What is handed over is kept: its grid is its size, and
    LLaVA's square is cut from it.
    """
    stream = random.Random(20)
    drawn = [(stream.randint(20, 2600), stream.randint(20, 2600)) for _ in range(300)]
    sizes = [size for size in drawn if max(size) / min(size) < 90][:200]
    grids = [QwenGrid("qwen", 2 * patch, smallest, largest) for patch, smallest, largest in QWEN]
    handed = [grids[0].target_size(*size) for size in sizes]
    scaled = [LlavaGrid().target_size(*size) for size in sizes]
    asked = {
        "sizes": sizes,
        "qwen": QWEN,
        "handed": {"qwen": handed, "max_pixels": TINY, "llava": scaled},
    }

    run = subprocess.run(
        [engine_python(), str(SCRIPT), str(ROOT / "serving" / "engines" / "cpu_host")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    answer = json.loads(run.stdout)

    assert len(sizes) == 200
    for grid, theirs in zip(grids, answer["qwen"], strict=True):
        rows = list(zip(sizes, theirs["once"], theirs["twice"], theirs["tokens"], strict=True))
        settled = [(size, chosen, tokens) for size, chosen, again, tokens in rows if chosen == again]
        assert len(settled) >= (150 if grid.max_pixels < 100_000 else 200)
        assert [list(grid.target_size(*size)) for size, _, _ in settled] == [
            chosen for _, chosen, _ in settled
        ]
        assert [grid.tokens(*size) for size, _, _ in settled] == [tokens for _, _, tokens in settled]
    assert answer["grids"] == [[1, height // 14, width // 14] for width, height in handed]
    assert answer["llava"] == [[3, 336, 336]] * len(scaled)
    assert answer["internvl"] == [InternVLGrid().tokens(*size) // 256 for size in sizes]
