"""How long an engine's work takes, as formulas over tokens. Pure; seconds, bytes and tokens throughout.

    prefill  = prefill_s + tokens * prefill_token_s + (tokens * seen + tokens^2 / 2) * prefill_pair_s
    encode   = encode_s + tokens * encode_token_s                       (vision tower, none without images)
    step     = decode_s + batch * decode_request_s + context * decode_token_s
    transfer = transfer_s + tokens * kv_token_bytes / (transfer_bytes_per_s / transfers)      (link.py)

`seen` are the tokens of the same request that earlier chunks computed: attention looks at each of them. The forms are the
roofline's: prefill is bound by arithmetic (linear layers per token, attention per pair of tokens), decode by reading the
weights once per step and the KV cache of every running request. `transfers` are those under way from the same prefill at the
time: they share its link equally. An image is decoded for real (media.py), so that cost is the machine's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Costs:
    """Parameters of the formulas. kv_token_bytes: KV cache of one token, all layers."""

    prefill_s: float
    prefill_token_s: float
    prefill_pair_s: float
    encode_s: float
    encode_token_s: float
    decode_s: float
    decode_request_s: float
    decode_token_s: float
    transfer_s: float
    transfer_bytes_per_s: float
    kv_token_bytes: int

    def prefill(self, tokens: int, seen: int = 0) -> float:
        """Computing `tokens` uncached prompt tokens of one request after `seen` earlier ones; without the batch's `prefill_s`."""
        return tokens * self.prefill_token_s + (tokens * seen + tokens * tokens / 2) * self.prefill_pair_s

    def encode(self, image_tokens: int) -> float:
        return self.encode_s + image_tokens * self.encode_token_s if image_tokens else 0.0

    def step(self, batch: int, context: int) -> float:
        """One decode step of `batch` requests with `context` tokens in all."""
        return self.decode_s + batch * self.decode_request_s + context * self.decode_token_s

    def transfer(self, tokens: int) -> float:
        """Alone on the link."""
        return self.transfer_s + self.kv_bytes(tokens) / self.transfer_bytes_per_s

    def kv_bytes(self, tokens: int) -> int:
        return tokens * self.kv_token_bytes


CPU_TINY = Costs(
    prefill_s=0.012,
    prefill_token_s=60e-6,
    prefill_pair_s=10e-9,
    encode_s=0.008,
    encode_token_s=60e-6,
    decode_s=0.007,
    decode_request_s=0.0009,
    decode_token_s=0.5e-6,
    transfer_s=0.006,
    transfer_bytes_per_s=1e9,
    kv_token_bytes=512,
)
"""The order of magnitude of the tiny model on two CPU cores, from unloaded requests to the real pair: first token of 12
tokens after 40 ms, of 265 tokens (247 of an image) after 75 ms, 8-10 ms between tokens, a transfer in 8 ms."""

H100_LIKE = Costs(
    prefill_s=0.008,
    prefill_token_s=38e-6,
    prefill_pair_s=1e-9,
    encode_s=0.004,
    encode_token_s=18e-6,
    decode_s=0.006,
    decode_request_s=0.00005,
    decode_token_s=17e-9,
    transfer_s=0.002,
    transfer_bytes_per_s=40e9,
    kv_token_bytes=57_344,
)
"""Qwen2.5-VL-7B in bf16 on one H100 with 400 Gb/s RDMA, computed from data sheets and measured nowhere: 15.2 GFLOP per
token at 400 TFLOP/s; 5.4 GFLOP per image token (0.67 B parameters, four patches) at 300; 15.2 GB of weights and
57,344 B of KV per token (28 layers x 2 x 4 heads x 128 x 2 B) at 3.35 TB/s, and a quarter on top for launches."""

PRESETS: Mapping[str, Costs] = MappingProxyType({"cpu_tiny": CPU_TINY, "h100_like": H100_LIKE})
