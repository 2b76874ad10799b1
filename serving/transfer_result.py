"""What a transfer benchmark measured, and what it means for a request's KV cache. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from serving.transfer_plan import Plan
from toolkit.core.slo import Quantile, quantile

REPORT_VERSION = 1
GB = 1e9
EDGES_S = (0.030, 0.100)
"""The article's edges for the P95 of a KV transfer: RDMA stays under 30 ms, TCP passed 100 ms."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One cell. Seconds and bytes; late_s: from Mooncake's word that the last one is done
    to the target's that its last byte is there, the asking included."""

    size_bytes: int
    batch: int
    transfers: int
    bytes: int
    elapsed_s: float
    late_s: float
    cpu_initiator_s: float
    cpu_target_s: float
    p50: Quantile
    p95: Quantile
    p99: Quantile

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """From the agent's event `cell`. Raises KeyError."""
        seconds = event["latencies_s"]
        levels = [quantile(seconds, p) for p in (0.5, 0.95, 0.99)]
        p50, p95, p99 = (one for one in levels if one is not None)
        names = ("size_bytes", "batch", "transfers", "bytes", "elapsed_s", "late_s")
        cpu = ("cpu_initiator_s", "cpu_target_s")
        return cls(**{name: event[name] for name in (*names, *cpu)}, p50=p50, p95=p95, p99=p99)

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.elapsed_s

    def cpu_s_per_gb(self, spent_s: float) -> float:
        return spent_s * GB / self.bytes


@dataclass(frozen=True, slots=True)
class KvShape:
    """What of a model decides how many bytes of KV cache one token has."""

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    bytes_per_value: int
    tokens: int

    @property
    def bytes_per_token(self) -> int:
        """layers * kv_heads * head_dim * 2 (a key and a value) * bytes of one."""
        return self.layers * self.kv_heads * self.head_dim * 2 * self.bytes_per_value

    @property
    def bytes(self) -> int:
        return self.bytes_per_token * self.tokens


TYPICAL = (
    KvShape("tiny-qwen2.5-vl (float32)", layers=2, kv_heads=2, head_dim=16, bytes_per_value=4, tokens=344),
    KvShape("Qwen2.5-VL-7B (bfloat16)", layers=28, kv_heads=4, head_dim=128, bytes_per_value=2, tokens=3000),
)
"""The tiny model: build_tiny_model.py, with the prompt of README's example. Qwen2.5-VL-7B: its config.json, with an
image of 1,500 to 2,500 tokens and text."""


@dataclass(frozen=True, slots=True)
class KvTime:
    """How long a request's KV takes, as a floor. passes: for each of EDGES_S, whether that is within it."""

    shape: KvShape
    seconds: float
    passes: tuple[bool, ...]

    @property
    def needed_bytes_per_s(self) -> tuple[float, ...]:
        return tuple(self.shape.bytes / edge for edge in EDGES_S)


def kv_time(shape: KvShape, cells: Sequence[Measured]) -> KvTime:
    """The best rate that was measured, and no less than the shortest P50 of what is no larger than the cache.

    A floor: SGLang's scheduler takes its turns between the blocks, and other transfers share the wire.
    """
    rate = max(cell.bytes_per_s for cell in cells)
    no_larger = [cell.p50.estimate for cell in cells if cell.size_bytes * cell.batch <= shape.bytes]
    seconds = max(shape.bytes / rate, min(no_larger, default=0.0))
    return KvTime(shape, seconds, tuple(seconds <= edge for edge in EDGES_S))


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run. mooncake: as installed at the initiator; environment: the MC_* both ends had here;
    load: of the last minute when it began, for `cores` usable ones."""

    plan: Plan
    cells: tuple[Measured, ...]
    mooncake: str
    environment: Mapping[str, str]
    peer: str
    started_at: float  # Unix seconds
    load: float
    cores: int

    @property
    def kv(self) -> tuple[KvTime, ...]:
        return tuple(kv_time(shape, self.cells) for shape in TYPICAL)

    def to_dict(self) -> dict[str, Any]:
        """transfer.json. Seconds, bytes; a percentile that is not firm is a lower bound only."""
        return {
            "version": REPORT_VERSION,
            "started_at": self.started_at,
            "protocol": self.plan.protocol,
            "protocol_because": self.plan.why,
            "device": self.plan.device,
            "mooncake": self.mooncake,
            "peer": self.peer,
            "streams": self.plan.streams,
            "buffer_bytes": self.plan.buffer_bytes,
            "load": self.load,
            "cores": self.cores,
            "environment": dict(self.environment),
            "verified": True,  # a run whose bytes differ ends with an error and has no report
            "cells": [_cell(one, self.plan.streams) for one in self.cells],
            "not_run": [{"size_bytes": one.size_bytes, "batch": one.batch} for one in self.plan.too_large],
            "kv": [_kv(one) for one in self.kv],
        }


def _cell(cell: Measured, streams: int) -> dict[str, Any]:
    return {
        "size_bytes": cell.size_bytes,
        "batch": cell.batch,
        "transfers": cell.transfers,
        "bytes": cell.bytes,
        "elapsed_s": cell.elapsed_s,
        "late_s": cell.late_s,
        "latency_s": {
            name: {"value": one.estimate if one.firm else None, "at_least": one.lower, "needs": one.needed}
            for name, one in (("p50", cell.p50), ("p95", cell.p95), ("p99", cell.p99))
        },
        "gb_per_s": cell.bytes_per_s / GB,
        "mb_per_s_each_stream": cell.bytes_per_s / 1e6 / streams,
        "cpu_s_per_gb_initiator": cell.cpu_s_per_gb(cell.cpu_initiator_s),
        "cpu_s_per_gb_target": cell.cpu_s_per_gb(cell.cpu_target_s),
    }


def _kv(one: KvTime) -> dict[str, Any]:
    return {
        "model": one.shape.name,
        "tokens": one.shape.tokens,
        "bytes_per_token": one.shape.bytes_per_token,
        "bytes": one.shape.bytes,
        "at_least_s": one.seconds,
        "within": {f"{edge:g}": passed for edge, passed in zip(EDGES_S, one.passes, strict=True)},
    }
