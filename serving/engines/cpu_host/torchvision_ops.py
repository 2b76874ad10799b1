"""Declare torchvision's operators where its own extension can't load.

PyPI's torchvision is a CUDA build: beside a CPU torch its _C.so finds no libcudart, and the import ends with
"operator torchvision::nms does not exist" (torchvision/_meta_registrations.py:163 `torchvision::nms`). SGLang needs
that import (sglang/srt/multimodal/processors/qwen_vl.py:12 `import torchvision`), and nothing of the operators
themselves: images are decoded by Pillow and resized by torchvision.transforms.
Beside a CUDA torch the extension loads and declares them itself, so nothing is done.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# The operators as torchvision 0.28 declares them (csrc/ops/*.cpp), one a line.
SCHEMAS = Path(__file__).with_suffix(".txt")


class DeclareBeforeImport(importlib.abc.MetaPathFinder):
    """Acts once, at the first import of torchvision; the ordinary finders then go on.

    Waiting for that moment keeps torch out of processes that never import torchvision.
    """

    def __init__(self) -> None:
        self.library: Any = None  # the declarations live as long as this object

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "torchvision" and self.library is None:
            import torch

            if torch.version.cuda is None:
                self.library = torch.library.Library("torchvision", "FRAGMENT")
                for schema in SCHEMAS.read_text(encoding="utf-8").splitlines():
                    self.library.define(schema)
        return None


def install() -> None:
    """Put the finder in front, once."""
    if not any(isinstance(finder, DeclareBeforeImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, DeclareBeforeImport())
