"""What an engine tells of itself, as JSON documents. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from serving.engines.simulated.effects import Limits, Load, Role

VERSION = "0.5.23"
"""The SGLang whose dialect this is."""
STAND_IN = "simulated"
"""Where a real engine names its model's folder."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the engine says of itself. health_generates: /health runs a token, as SGLang's does unless told otherwise."""

    model_name: str
    role: Role
    port: int
    bootstrap_port: int
    preset: str
    health_generates: bool

    @property
    def mode(self) -> str:
        return "null" if self.role == "unified" else self.role


def server_info(identity: Identity, limits: Limits, load: Load) -> dict[str, Any]:
    state = {
        "effective_max_running_requests_per_dp": limits.max_running,
        "last_gen_throughput": load.throughput,
        "memory_usage": {"token_capacity": limits.max_total_tokens},
    }
    return {
        "simulated": True,
        "preset": identity.preset,
        "model_path": STAND_IN,
        "tokenizer_path": STAND_IN,
        "served_model_name": identity.model_name,
        "port": identity.port,
        "tp_size": 1,
        "dp_size": 1,
        "page_size": limits.page_size,
        "max_running_requests": limits.max_running,
        "max_total_tokens": limits.max_total_tokens,
        "max_total_num_tokens": limits.max_total_tokens,
        "context_length": limits.context_tokens,
        "chunked_prefill_size": limits.chunk_tokens,
        "disaggregation_mode": identity.mode,
        "disaggregation_bootstrap_port": identity.bootstrap_port,
        "disaggregation_transfer_backend": STAND_IN,
        "enable_metrics": True,
        "version": VERSION,
        "internal_states": [state],
    }


def model_info(identity: Identity) -> dict[str, Any]:
    return {
        "simulated": True,
        "model_path": STAND_IN,
        "served_model_name": identity.model_name,
        "tokenizer_path": STAND_IN,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": None,
        "disaggregation_mode": identity.mode,
        "has_image_understanding": True,
        "has_audio_understanding": False,
        "model_type": "qwen2_5_vl",
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    }


def models(identity: Identity, limits: Limits, created: int) -> dict[str, Any]:
    """created: Unix seconds."""
    one = {
        "id": identity.model_name,
        "object": "model",
        "created": created,
        "owned_by": "sglang",
        "root": identity.model_name,
        "parent": None,
        "max_model_len": limits.context_tokens,
    }
    return {"object": "list", "data": [one]}


def loads(identity: Identity, limits: Limits, load: Load, kv_bytes: int, taken: float) -> dict[str, Any]:
    """kv_bytes: of the whole pool. taken: Unix seconds of the look."""
    one = {
        "timestamp": taken,
        "dp_rank": 0,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.waiting,
        "num_waiting_uncached_tokens": load.waiting_tokens,
        "num_used_tokens": load.used_tokens,
        "num_total_tokens": load.used_tokens,
        "num_active_tokens": load.context_tokens,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": limits.max_total_tokens,
        "max_running_requests": limits.max_running,
        "token_usage": round(load.used_tokens / limits.max_total_tokens, 4),
        "gen_throughput": round(load.throughput, 2),
        "cache_hit_rate": 0.0,
        "utilization": 0.0,
        "total_prefill_uncached_tokens": load.prefill_tokens,
        "total_prefill_busy_us": int(load.prefill_busy_s * 1e6),
        "decode_moments": None,
        "memory": {
            "weight_gb": 0.0,
            "kv_cache_gb": round(kv_bytes / 2**30, 3),
            "graph_gb": 0.0,
            "token_capacity": limits.max_total_tokens,
        },
        "disaggregation": {
            "mode": identity.mode,
            "prefill_bootstrap_queue_reqs": load.bootstrap,
            "prefill_inflight_queue_reqs": load.inflight,
            "decode_prealloc_queue_reqs": load.prealloc,
            "decode_transfer_queue_reqs": load.transfer,
            "decode_retracted_queue_reqs": load.retracted,
            "kv_transfer_speed_gb_s": load.transfer_bytes_per_s / 1e9,
            "kv_transfer_latency_ms": load.transfer_s * 1e3,
        },
        "queues": {
            "waiting": load.waiting,
            "grammar": 0,
            "paused": load.paused,
            "retracted": load.retracted,
            "prealloc_ready": 0,
        },
    }
    return {
        "timestamp": datetime.fromtimestamp(taken, UTC).isoformat(),
        "version": VERSION,
        "accelerator": None,
        "num_accelerators": 1,
        "loads": [one],
    }
