"""Launch the unmodified SGLang server without a GPU: python -m cpu_engine <flags of sglang.launch_server>.

Everything above the main guard also runs in each child (scheduler, detokenizer): SGLang starts them with
multiprocessing's spawn, which imports the main module again. So the shims are there before any import of sglang.
"""

import os
import sys

# Chooses SGLang's in-tree CPU platform: sglang/srt/utils/common.py:222 `SGLANG_USE_CPU_ENGINE`.
os.environ["SGLANG_USE_CPU_ENGINE"] = "1"

import torchvision_ops
import triton_stub

triton_stub.install(sys.path)
torchvision_ops.install()

if __name__ == "__main__":
    import runpy

    runpy.run_module("sglang.launch_server", run_name="__main__")
