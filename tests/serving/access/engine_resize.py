"""Run by the engine's interpreter: torch's antialiased bicubic, which its image processors resize with.

The argument is a folder of .npz files with `source` (rows of RGB) and `made`, ours. Stdout: by file the largest difference.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

torch.set_num_threads(1)
found = {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    arrays = np.load(path)
    made = torch.from_numpy(arrays["made"]).permute(2, 0, 1)[None]
    source = torch.from_numpy(arrays["source"]).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(
        source, size=made.shape[2:], mode="bicubic", antialias=True, align_corners=False
    )
    found[path.stem] = int((resized.int() - made.int()).abs().max())
print(json.dumps(found))
