"""Run by the engine's interpreter: its image processor on files, from bytes, one per line of stdin.

The argument is the folder of the shims for a machine without a GPU. A line is a path; the answer is {"cpu_s": ...}. With
a second path, the pixels that the processor's resize makes are kept there as .npy instead, and nothing is measured.
"""

import json
import sys
import time
from io import BytesIO
from pathlib import Path

import torch

if not torch.cuda.is_available():
    sys.path.insert(0, sys.argv[1])
    import torchvision_ops

    torchvision_ops.install()

import numpy as np
from PIL import Image
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor, smart_resize

SIZE = {"shortest_edge": 56 * 56, "longest_edge": 1280 * 28 * 28}


def resized(image: Image.Image) -> np.ndarray:
    """Rows of RGB, as the processor has them before it normalises."""
    height, width = smart_resize(image.height, image.width, 28, SIZE["shortest_edge"], SIZE["longest_edge"])
    rows = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None]
    made = torch.nn.functional.interpolate(
        rows, size=(height, width), mode="bicubic", antialias=True, align_corners=False
    )
    return made[0].permute(1, 2, 0).numpy()


def main() -> None:
    """Until stdin ends."""
    torch.set_num_threads(1)
    processor = Qwen2VLImageProcessor(size=SIZE)
    for line in sys.stdin:
        path, _, kept = line.strip().partition("\t")
        data = Path(path).read_bytes()
        began = time.process_time()
        image = Image.open(BytesIO(data)).convert("RGB")
        if kept:
            np.save(kept, resized(image))
        else:
            processor(images=[image], return_tensors="pt")
        print(json.dumps({"cpu_s": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main()
