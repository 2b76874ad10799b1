"""Operators under torch.ops.sgl_kernel that SGLang's modules look up while they are imported.

sglang/srt/models/qwen3_5.py:284 `fused_sigmoid_mul_cpu` does, and the Qwen-VL processor imports that module
(sglang/srt/multimodal/processors/qwen_vl.py:31 `qwen3_5`): without the declarations the server says "No processor
registered for Qwen2_5_VL".
"""

import torch

library = torch.library.Library("sgl_kernel", "FRAGMENT")  # the declarations live as long as this object
library.define("fused_sigmoid_mul_cpu(Tensor(a!) x, Tensor gate) -> ()")
for name in (
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
):
    library.define(f"{name}(Tensor x) -> Tensor")


def fused_sigmoid_mul(x: torch.Tensor, gate: torch.Tensor) -> None:
    """x *= sigmoid(gate), in place."""
    x.mul_(torch.sigmoid(gate.reshape(x.shape)))


library.impl("fused_sigmoid_mul_cpu", fused_sigmoid_mul, "CPU")
