"""Run by the engine's interpreter: how far handed-over pictures are from what its processor makes of the originals.

JSON on stdin: [{"original": file, "max_pixels": n, "handed": [file of a data URI, ...]}, ...]; on stdout for each a list of
{"psnr": dB or null where nothing differs, "most": levels, "above": share of values further than one level off, "grid":
[original's, handed over's]}. The argument is the folder of the shims for a machine without a GPU, as the engine gets them there.

Both sides are the processor's own output before it rescales and normalises: uint8 patches; the original is turned upright
first, which SGLang would not do. Handed-over pictures come
through SGLang's own loader, cut out of its file: importing the module needs a GPU build of half of it.
"""

import ast
import importlib.util
import json
import math
import sys
from io import BytesIO
from pathlib import Path

import torch

if not torch.cuda.is_available():
    sys.path.insert(0, sys.argv[1])
    import torchvision_ops

    torchvision_ops.install()

import pybase64
from PIL import Image, ImageOps
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

COMMON = Path(importlib.util.find_spec("sglang").origin).parent / "srt" / "utils" / "common.py"


def loader():
    """SGLang's _load_image without a GPU."""
    names = {"_load_image", "_fully_load_pil_image", "get_image_bytes"}
    tree = ast.parse(COMMON.read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    assert len(found) == len(names)
    for node in found:
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
    scope = {"Image": Image, "BytesIO": BytesIO, "pybase64": pybase64, "is_jpeg_with_cuda": lambda *_: False}
    exec(compile(ast.Module(found, []), str(COMMON), "exec"), scope)
    return scope["_load_image"]


def rgb(image):
    """As base_processor._load_single_item hands it to the processor."""
    return image if image.mode == "RGB" else image.convert("RGB")


def main() -> None:
    torch.set_num_threads(1)
    load = loader()
    answers = []
    for case in json.load(sys.stdin):
        processor = Qwen2VLImageProcessor(
            size={"shortest_edge": 56 * 56, "longest_edge": case["max_pixels"]},
            do_rescale=False,
            do_normalize=False,
        )

        def seen(image, processor=processor):
            made = processor(image, return_tensors="pt")
            assert made["pixel_values"].dtype == torch.uint8
            return made["pixel_values"], made["image_grid_thw"][0].tolist()

        with Image.open(case["original"]) as original:
            wanted, grid = seen(rgb(ImageOps.exif_transpose(original)))
        answers.append([])
        for file in case["handed"]:
            found, handed_grid = seen(rgb(load(image_file=Path(file).read_text())))
            answer = {"psnr": None, "most": None, "above": None, "grid": [grid, handed_grid]}
            if handed_grid == grid:
                gap = found.to(torch.int16) - wanted.to(torch.int16)
                error = float(gap.to(torch.float64).square().mean())
                answer |= {
                    "psnr": 10 * math.log10(255**2 / error) if error else None,
                    "most": int(gap.abs().max()),
                    "above": float((gap.abs() > 1).to(torch.float64).mean()),
                }
            answers[-1].append(answer)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
