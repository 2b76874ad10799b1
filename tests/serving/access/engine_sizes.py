"""Run by the engine's interpreter: what its own processors choose. Sizes as JSON on stdin, answers on stdout.

The argument is the folder of the shims for a machine without a GPU, as the engine itself gets them there.

SGLang's functions are cut out of its files: importing the modules needs a GPU build of half of it.
"""

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

if not torch.cuda.is_available():
    sys.path.insert(0, sys.argv[1])
    import torchvision_ops

    torchvision_ops.install()

from PIL import Image
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

PROCESSORS = Path(importlib.util.find_spec("sglang").origin).parent / "srt" / "multimodal" / "processors"


def cut(file: str, names: set[str], scope: dict[str, object]) -> dict[str, object]:
    """The functions of that name in the file, run in `scope`."""
    tree = ast.parse((PROCESSORS / file).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in found:
        node.decorator_list = []
    exec(compile(ast.Module(found, []), file, "exec"), scope)
    return scope


class Pixels:
    """Stands for a tensor of which only the shape matters."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def unsqueeze(self, _: int) -> "Pixels":
        return self

    squeeze = unsqueeze

    def __getitem__(self, _: object) -> "Pixels":
        return self


def fake_torch() -> SimpleNamespace:
    resize = SimpleNamespace(interpolate=lambda pixels, **_: pixels)
    return SimpleNamespace(
        nn=SimpleNamespace(functional=resize),
        stack=lambda tiles: SimpleNamespace(to=lambda _: len(tiles)),
        bfloat16=None,
    )


def main() -> None:
    asked = json.load(sys.stdin)
    sizes = [tuple(size) for size in asked["sizes"]]
    scope = {"IMAGE_MAX_NUM": 12, "torch": fake_torch()}
    tiles = cut("internvl.py", {"dynamic_preprocess"}, scope)["dynamic_preprocess"]

    qwen = []
    for patch, smallest, largest in asked["qwen"]:
        processor = Qwen2VLImageProcessorPil(
            patch_size=patch, merge_size=2, size={"shortest_edge": smallest, "longest_edge": largest}
        )
        tokens = [processor.get_number_of_image_patches(h, w, {}) // 4 for w, h in sizes]
        bounds = {"factor": patch * 2, "min_pixels": smallest, "max_pixels": largest}
        once = [smart_resize(h, w, **bounds) for w, h in sizes]
        twice = [smart_resize(h, w, **bounds) for h, w in once]
        qwen.append(
            {"tokens": tokens, "once": [size[::-1] for size in once], "twice": [size[::-1] for size in twice]}
        )

    handed = Qwen2VLImageProcessorPil(
        size={"shortest_edge": 3136, "longest_edge": asked["handed"]["max_pixels"]}
    )
    grids = [
        handed(Image.new("RGB", tuple(size)))["image_grid_thw"][0].tolist()
        for size in asked["handed"]["qwen"]
    ]
    llava = LlavaImageProcessorPil(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336})
    cropped = [
        list(llava(Image.new("RGB", tuple(size)))["pixel_values"][0].shape)
        for size in asked["handed"]["llava"]
    ]
    internvl = [tiles(Pixels(3, h, w), use_thumbnail=True) for w, h in sizes]
    json.dump({"qwen": qwen, "grids": grids, "llava": cropped, "internvl": internvl}, sys.stdout)


if __name__ == "__main__":
    main()
