"""Adjustments made through SGLang's own plugin group `sglang.srt.plugins`.

SGLang calls `register` in every one of its processes (main, scheduler, detokenizer) before it serves.
"""


def register() -> None:
    """Make Mooncake take KV page indices from ordinary memory.

    MooncakeKVSender says so of pinned memory (sglang/srt/disaggregation/mooncake/conn.py:3312
    `supports_host_tensor_indices = True`); the prefill scheduler then makes a pinned tensor and a CUDA event
    (sglang/srt/disaggregation/prefill.py:1746 `supports_host_tensor_indices`), and a CPU torch has neither. With the
    attribute off, the same function takes its numpy path.
    """
    import torch

    if torch.cuda.is_available():
        return
    from sglang.srt.disaggregation.mooncake.conn import MooncakeKVSender

    MooncakeKVSender.supports_host_tensor_indices = False
