"""State-space kernels: imported by sglang/srt/layers/attention/linear/gdn_backend.py:184 `sgl_kernel.mamba`, called
by no model served here.
"""

from sgl_kernel.missing import missing


def __getattr__(name: str) -> object:
    if name.endswith("_cpu"):
        return missing(f"sgl_kernel.mamba.{name}")
    raise AttributeError(name)
