"""Stand-in for the CPU build of sgl-kernel, which no package index has: the kernels SGLang's CPU path asks for.

Without AMX nearly every layer takes its plain torch path. What is left:
  * functions that SGLang imports by name whenever the platform is the CPU (`missing` raises for those without a body:
    none of them is called for the Qwen2-VL, Qwen2.5-VL and Qwen3-VL models without speculation);
  * operators that modules look up in torch.ops.sgl_kernel while they are imported.
"""

from sgl_kernel import operators as operators
from sgl_kernel.kv_slots import assign_req_to_token_pool_cpu as assign_req_to_token_pool_cpu
from sgl_kernel.missing import missing

__version__ = "0.0.0+standin"


def __getattr__(name: str) -> object:
    """For further imports by name: sglang/kernels/ops/kvcache/cache_move.py:10 `copy_all_layer_kv_cache_cpu`, and others."""
    if name.endswith("_cpu"):
        return missing(f"sgl_kernel.{name}")
    raise AttributeError(name)
