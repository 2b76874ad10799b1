"""/metrics with SGLang 0.5.23's names and labels, for the part of them that a dashboard or alert can use.

What the real engine does not export is not exported here either. Prefill and decode engines behind Mooncake show the
scheduler's metrics only: none of the tokenizer's (TTFT, ITL, end to end, HTTP counts) is in a scrape of the real pair, since
prometheus_client is imported before its multiprocess folder is set. A unified engine shows both.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from serving.engines.simulated.effects import Load, Observation, Role
from serving.engines.simulated.scheduler import Scheduler

PREFIX = "sglang:"
SCHEDULER_LABELS = ("model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank")
TOKENIZER_LABELS = ("model_name", "engine_type")

TTFT_S = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
ITL_S = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2,
         4, 6, 8)  # fmt: skip
_E2E_S = (*TTFT_S, 600, 1200, 1800, 2400)
_QUEUE_S = (0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, *range(20, 100, 10), *range(100, 1000, 100),
            *range(1000, 2001, 200), 2500, 3000)  # fmt: skip
_STAGE_S = tuple(accumulate(repeat(1.62, 29), lambda edge, width: edge * width, initial=0.001))
_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500)

_HISTOGRAMS: Mapping[str, tuple[str, tuple[str, ...], Sequence[float]]] = {
    "queue_time_seconds": ("Histogram of queueing time in seconds.", (), _QUEUE_S),
    "per_stage_req_latency_seconds": ("The latency of each stage of requests.", ("stage",), _STAGE_S),
    "kv_transfer_latency_ms": ("KV transfer latency, ms.", (), (*_MS, 5000)),
    "kv_transfer_total_mb": ("KV transfer size, MB.", (), (1, 5, 10, 50, 100, 500, 1000, 5000, 10000)),
    "kv_transfer_speed_gb_s": ("KV transfer speed, GB/s.", (), (0.1, 0.5, 1, 5, 10, 25, 50, 100, 200, 400)),
    "kv_transfer_bootstrap_ms": ("KV transfer bootstrap time, ms.", (), _MS),
    "kv_transfer_alloc_ms": ("KV transfer alloc time, ms.", (), _MS),
}
_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "realtime_tokens_total": ("Tokens processed, by mode.", ("mode",)),
    "num_bootstrap_failed_reqs_total": ("The number of bootstrap failed requests.", ()),
    "num_transfer_failed_reqs_total": ("The number of transfer failed requests.", ()),
    "num_retracted_requests_total": ("The number of retracted requests.", ()),
}
_GAUGES = (
    "num_running_reqs", "num_queue_reqs", "num_used_tokens", "token_usage", "full_token_usage", "gen_throughput",
    "cache_hit_rate", "decode_sum_seq_lens", "kv_available_tokens", "kv_evictable_tokens", "kv_used_tokens",
    "num_prefill_bootstrap_queue_reqs", "num_prefill_inflight_queue_reqs", "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs", "num_decode_deferred_kv_release_reqs", "pending_prealloc_token_usage", "utilization",
    "max_total_num_tokens", "page_size", "num_pages", "context_len", "kv_cache_memory_usage_gb",
)  # fmt: skip


class Metrics:
    """One engine's metrics. ttft_s, itl_s: histogram edges, seconds."""

    def __init__(
        self,
        model: str,
        role: Role,
        pid: int,
        ttft_s: Sequence[float] = TTFT_S,
        itl_s: Sequence[float] = ITL_S,
    ) -> None:
        self._registry = CollectorRegistry()
        self._scheduler = {
            "model_name": model,
            "engine_type": role,
            "tp_rank": "0",
            "pp_rank": "0",
            "moe_ep_rank": "0",
        }
        self._pid = str(pid)
        self._gauges = {name: self._gauge(name, SCHEDULER_LABELS) for name in _GAUGES}
        self._own = {
            name: self._gauge(name, (*SCHEDULER_LABELS, "pid"))
            for name in ("num_retracted_reqs", "num_paused_reqs")
        }
        self._histograms = {
            name: Histogram(
                PREFIX + name, text, (*SCHEDULER_LABELS, *extra), buckets=edges, registry=self._registry
            )
            for name, (text, extra, edges) in _HISTOGRAMS.items()
        }
        self._counters = {
            name: Counter(PREFIX + name, text, (*SCHEDULER_LABELS, *extra), registry=self._registry)
            for name, (text, extra) in _COUNTERS.items()
        }
        self._recoveries = (
            None
            if role == "unified"
            else Counter(
                PREFIX + "failed_session_recoveries_total",
                "Failed sessions that came back.",
                registry=self._registry,
            )
        )
        self._recovered = 0
        self.requests = RequestMetrics(self._registry, model, ttft_s, itl_s) if role == "unified" else None
        Gauge("toolkit_simulated", "1: this engine is a stand-in.", registry=self._registry).set(1)

    def observe(self, seen: Sequence[Observation]) -> None:
        for one in seen:
            labels = dict(self._scheduler)
            if one.metric in _HISTOGRAMS:
                if one.stage:
                    labels["stage"] = one.stage
                self._histograms[one.metric].labels(**labels).observe(one.value)
            else:
                if one.stage:
                    labels["mode"] = one.stage
                self._counters[one.metric].labels(**labels).inc(one.value)

    def page(self, scheduler: Scheduler) -> bytes:
        """The exposition text. Gauges are as old as the scheduler's last look at itself."""
        load, limits = scheduler.gauges, scheduler.limits
        for name, value in _values(load).items():
            self._gauges[name].labels(**self._scheduler).set(value)
        sizes = {
            "max_total_num_tokens": limits.max_total_tokens,
            "page_size": limits.page_size,
            "num_pages": limits.max_total_tokens // limits.page_size,
            "context_len": limits.context_tokens,
            "kv_cache_memory_usage_gb": scheduler.costs.kv_bytes(limits.max_total_tokens) / 2**30,
        }
        for name, value in sizes.items():
            self._gauges[name].labels(**self._scheduler).set(value)
        for name, value in (("num_retracted_reqs", load.retracted), ("num_paused_reqs", load.paused)):
            self._own[name].labels(**self._scheduler, pid=self._pid).set(value)
        if self._recoveries is not None:
            self._recoveries.inc(scheduler.recoveries - self._recovered)
            self._recovered = scheduler.recoveries
        return generate_latest(self._registry)

    def _gauge(self, name: str, labels: Sequence[str]) -> Gauge:
        return Gauge(PREFIX + name, f"SGLang's {name}.", labels, registry=self._registry)


class RequestMetrics:
    """What SGLang's tokenizer and HTTP server count."""

    def __init__(
        self, registry: CollectorRegistry, model: str, ttft_s: Sequence[float], itl_s: Sequence[float]
    ) -> None:
        self._labels = {"model_name": model, "engine_type": "unified"}
        streaming = (*TOKENIZER_LABELS, "is_streaming")

        def histogram(name: str, labels: Sequence[str], edges: Sequence[float]) -> Histogram:
            return Histogram(PREFIX + name, f"SGLang's {name}.", labels, buckets=edges, registry=registry)

        def counter(name: str, labels: Sequence[str]) -> Counter:
            return Counter(PREFIX + name, f"SGLang's {name}.", labels, registry=registry)

        self._ttft = histogram("time_to_first_token_seconds", streaming, ttft_s)
        self._itl = histogram("inter_token_latency_seconds", TOKENIZER_LABELS, itl_s)
        self._e2e = histogram("e2e_request_latency_seconds", streaming, _E2E_S)
        self._prompt = counter("prompt_tokens_total", streaming)
        self._generation = counter("generation_tokens_total", streaming)
        self._requests = counter("num_requests_total", streaming)
        self._aborted = counter("num_aborted_requests_total", TOKENIZER_LABELS)
        self._http = counter("http_requests_total", ("endpoint", "method"))
        self._responses = counter("http_responses_total", ("endpoint", "status_code", "method"))

    def first_token(self, seconds: float, *, stream: bool) -> None:
        self._ttft.labels(**self._labels, is_streaming=_flag(stream)).observe(seconds)

    def next_token(self, seconds: float) -> None:
        self._itl.labels(**self._labels).observe(seconds)

    def ended(self, seconds: float, prompt: int, made: int, *, stream: bool) -> None:
        labels = {**self._labels, "is_streaming": _flag(stream)}
        self._e2e.labels(**labels).observe(seconds)
        self._prompt.labels(**labels).inc(prompt)
        self._generation.labels(**labels).inc(made)
        self._requests.labels(**labels).inc()

    def aborted(self) -> None:
        self._aborted.labels(**self._labels).inc()

    def http(self, path: str, method: str, status: int) -> None:
        self._http.labels(endpoint=path, method=method).inc()
        self._responses.labels(endpoint=path, status_code=str(status), method=method).inc()


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _values(load: Load) -> dict[str, float]:
    usage = load.used_tokens / max(1, load.used_tokens + load.free_tokens)
    return {
        "num_running_reqs": load.running,
        "num_queue_reqs": load.waiting,
        "num_used_tokens": load.used_tokens,
        "token_usage": usage,
        "full_token_usage": usage,
        "gen_throughput": load.throughput,
        "cache_hit_rate": 0,
        "decode_sum_seq_lens": load.context_tokens,
        "kv_available_tokens": load.free_tokens,
        "kv_evictable_tokens": 0,
        "kv_used_tokens": load.used_tokens,
        "num_prefill_bootstrap_queue_reqs": load.bootstrap,
        "num_prefill_inflight_queue_reqs": load.inflight,
        "num_decode_prealloc_queue_reqs": load.prealloc,
        "num_decode_transfer_queue_reqs": load.transfer,
        "num_decode_deferred_kv_release_reqs": load.deferred,
        "pending_prealloc_token_usage": 0,
        "utilization": 0,
    }
