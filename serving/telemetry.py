"""Samples and states to Prometheus. The registry is passed in; every name comes from toolkit.core.names."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from toolkit.core import names
from toolkit.core.names import Metric
from toolkit.core.sample import Outcome, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

NOT_COUNTED = frozenset({Outcome.REJECTED, Outcome.CLIENT_CLOSED})
"""Outcomes that are neither good nor bad for the SLO: the caller's mistake, the caller's choice."""


class Telemetry:
    """Every metric of names.METRICS, registered once."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        self.registry = registry
        self._made: dict[str, Any] = {metric.name: _make(metric, registry) for metric in names.METRICS}
        self.gauge(names.BUILD_INFO, 1.0, version=version)

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        self._child(metric, labels).inc(amount)

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        self._child(metric, labels).set(value)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        self._child(metric, labels).observe(value)

    def render(self) -> bytes:
        """The exposition text of the whole registry."""
        return generate_latest(self.registry)

    def sample(self, sample: Sample, gaps_s: list[float]) -> None:
        """Count one finished request; `gaps_s` are its gaps between token events, seconds."""
        workload, slo, outcome = sample.workload_class.value, sample.slo_class.value, sample.outcome.value
        self.count(names.REQUESTS, workload_class=workload, slo_class=slo, outcome=outcome)
        self.count(names.TENANT_REQUESTS, tenant=sample.tenant, outcome=outcome)
        self.observe(names.DURATION, sample.timeline.ended, workload_class=workload, outcome=outcome)
        if sample.error_code is not None:
            self.count(names.ERRORS, code=sample.error_code, hop=sample.error_hop or "")
        if sample.error_code == "queue_too_long":
            self.count(names.REFUSED_EARLY, workload_class=workload, slo_class=slo)
        self._kv(sample)
        if sample.outcome not in NOT_COUNTED:
            self.count(
                names.SLO_VERDICTS,
                workload_class=workload,
                slo_class=slo,
                verdict="good" if within_budget(sample) else "bad",
            )
        if sample.timeline.first_token is not None:
            self.observe(names.TTFT, sample.timeline.first_token, workload_class=workload, slo_class=slo)
        for gap in gaps_s:
            self.observe(names.ITL, gap, workload_class=workload)
        for stage, seconds in sample.timeline.spent().items():
            self.observe(names.STAGES, seconds, stage=stage)
        for one in sample.degraded:
            self.count(names.DEGRADED, kind=one.kind.value, why=one.why, slo_class=slo)
        self._attempts(sample)
        if sample.prompt_tokens is not None:
            self.count(names.PROMPT_TOKENS, sample.prompt_tokens, workload_class=workload)
            self._compare(sample, sample.prompt_tokens)
        if sample.completion_tokens is not None:
            self.count(names.COMPLETION_TOKENS, sample.completion_tokens, workload_class=workload)
        for image in sample.images:
            self.count(names.IMAGES, format=image.format, origin=image.origin)
            self.count(names.IMAGE_BYTES, image.size_bytes, format=image.format)
            self.observe(names.IMAGE_PIXELS, image.width * image.height)
            self.count(names.IMAGE_TOKENS, image.tokens)

    def _kv(self, sample: Sample) -> None:
        """What it waited for KV, and whether that ended it."""
        workload, code = sample.workload_class.value, sample.error_code
        if sample.timeline.admitted is not None:
            self.observe(names.KV_WAIT, sample.lacked_kv, workload_class=workload)
        elif code is not None and (code == "kv_lease_exceeded" or sample.lacked_kv > 0):
            self.count(names.KV_REFUSED, workload_class=workload, code=code)

    def _attempts(self, sample: Sample) -> None:
        self.count(names.ATTEMPTS, sample.attempts)
        answered = sample.timeline.first_token is not None
        for index, lost in enumerate(sample.lost_attempts):
            if lost.then != "retried":
                self.count(names.RETRIES_REFUSED, cause=lost.cause, why=lost.then)
                continue
            again = any(later.choice == lost.choice for later in sample.lost_attempts[index + 1 :])
            result = "answered" if answered and not again else "failed"
            self.count(names.RETRIES, cause=lost.cause, result=result)

    def _compare(self, sample: Sample, reported: int) -> None:
        """Our count of the prompt beside the engine's."""
        workload = sample.workload_class.value
        counted = "exact" if sample.tokens_counted else "estimated"
        self.count(names.PROMPTS_COMPARED, workload_class=workload, counted=counted)
        if not sample.tokens_counted:
            return
        mine = sample.text_tokens_estimated + sample.image_tokens_estimated
        self.count(names.PROMPT_MISMATCHES, float(mine != reported), workload_class=workload)
        self.observe(names.PROMPT_DIFFERENCE, abs(mine - reported))

    def _child(self, metric: Metric, labels: dict[str, str]) -> Any:
        made = self._made[metric.name]
        return made.labels(**labels) if metric.labels else made


def within_budget(sample: Sample) -> bool:
    """Whether a request kept its TTFT promise and was answered whole."""
    first = sample.timeline.first_token
    return sample.outcome is Outcome.COMPLETED and first is not None and first <= sample.ttft_budget


def _make(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    if metric.kind == "counter":
        return Counter(metric.name.removesuffix("_total"), metric.help, metric.labels, registry=registry)
    if metric.kind == "gauge":
        return Gauge(metric.name, metric.help, metric.labels, registry=registry)
    return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=registry)
