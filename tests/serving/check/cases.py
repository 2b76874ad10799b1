"""For each rule a configuration on which it must fire. The fix that it tells is applied by the test, and must silence it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

INTERNVL = {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "llm_config": {"max_position_embeddings": 32768}}  # fmt: skip
QWEN = {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"], "max_position_embeddings": 128_000}  # fmt: skip
LLAVA = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}


@dataclass(frozen=True, slots=True)
class Case:
    """settings: as --set. environment: as exported. inside: over what the engines would get, for what serve itself sets right."""

    rule: str
    settings: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, object] | None = None
    gpu: bool = False


def extra(*words: str, role: str = "") -> str:
    key = f"engine.{role}.extra_args" if role else "engine.extra_args"
    return f"{key} = {list(words)}"


def attached(*decodes: str) -> tuple[str, str]:
    urls = [f"http://{one}" for one in decodes]
    return 'engine.attach_prefill = ["http://10.0.0.2:30000"]', f"engine.attach_decode = {urls}"


LEDGER = 'shared.url = "redis://:secret@10.0.0.5:6379/0"'
QWEN_CARD = "model.max_pixels=12845056"

CASES = (
    Case("argument-unknown", (extra("--max-queue-requests", "4"),)),
    Case("argument-unknown", (extra("--stream-interval", "2", "--foo=1"), extra("--foo", role="decode"))),
    Case("argument-choice", (extra("--schedule-policy", "hrrm"),)),
    Case("kv-int8", (extra("--kv-cache-dtype", "int8"),)),
    Case("kv-int8", (extra("--kv-cache-dtype", "fp8_e5m2"), extra("--kv-cache-dtype=int8", role="decode"))),
    Case("argument-owned", (extra("--port", "30000"),)),
    Case("argument-owned", (extra("--tensor-parallel-size", "2", role="prefill"),)),
    Case("argument-file", (extra("--config", "engine.yaml"),)),
    Case("queue-limit-ignored", (extra("--max-queued-requests", "64"),)),
    Case("policy-without-cache", (extra("--schedule-policy", "hrrn"),)),
    Case(
        "policy-without-cache", (extra("--schedule-policy", "lpm", "--disable-radix-cache", role="prefill"),)
    ),
    Case("policy-dies", (extra("--schedule-policy", "shortest-prefill-first"),)),
    Case(
        "hrrn-becomes-fcfs",
        (extra("--schedule-policy", "hrrn", role="prefill"), "schedule.max_in_flight = 256"),
    ),
    Case(
        "roles-unlike", (extra("--page-size", "16", role="prefill"), extra("--page-size", "1", role="decode"))
    ),
    Case("roles-unlike", (extra("--disaggregation-transfer-backend", "nixl", role="decode"),)),
    Case(
        "roles-unlike",
        (extra("--disaggregation-decode-allocation-policy", "prefill_complete", role="decode"),),
    ),
    Case("checksum-one-sided", (extra("--disaggregation-enable-kv-checksum", role="prefill"),)),
    Case("retraction-loses-requests", (extra("--disaggregation-decode-retraction-backup", "none"),)),
    Case("sessions-stay-failed", environment={"SGLANG_ENABLE_FAILED_SESSION_PROBE": "false"}),
    Case(
        "rdma-forced-to-tcp",
        ('engine.transfer = "rdma"', 'engine.ib_device = "mlx5_0"'),
        environment={"MC_FORCE_TCP": "0"},
        gpu=True,
    ),
    Case("priorities-abort", (extra("--abort-on-priority-when-disabled"),)),
    Case("internvl-tiles", model=INTERNVL),
    Case("image-processor-on-decode", gpu=True, model=QWEN),
    Case("fp8-vision-tower", (extra("--quantization", "fp8"),), model=QWEN, gpu=True),
    Case(
        "fp8-vision-tower",
        (extra("--quantization", "fp8", role="decode"),),
        environment={"SGLANG_FP8_IGNORED_LAYERS": "lm_head"},
        model={**QWEN, "model_type": "qwen2_vl"},
        gpu=True,
    ),
    Case("encoder-unsupported", (extra("--language-only"),), model=INTERNVL),
    Case("encoder-unsupported", (extra("--language-only", role="prefill"),), model=LLAVA),
    Case("encoder-in-a-role", (extra("--encoder-only", role="prefill"),)),
    Case("engine-without-eyes", (extra("--language-model-only"),)),
    Case("image-limit-unlike", (extra("--limit-mm-data-per-request", '{"image": 2}'),)),
    Case("image-size-overridden", (extra("--mm-process-config", '{"image": {"max_pixels": 100000}}'),)),
    Case("images-over-context", (QWEN_CARD,), model=QWEN),
    Case("images-over-context", (extra("--context-length", "4096"), "access.max_images = 64"), model=QWEN),
    Case("images-over-memory", (QWEN_CARD, "access.max_images = 16"), model=QWEN),
    Case("engines-wait-too-long", inside={"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "300"}),
    Case("engines-give-up-first", ("standard.ttft_budget_s = 90.0",)),
    Case("engines-give-up-first", ('default_slo_class = "batch"',)),
    Case("engines-give-up-first-batch"),
    Case("transfer-outlives-its-wait", environment={"MC_TRANSFER_TIMEOUT": "120"}),
    Case("stall-over-watchdog", (extra("--watchdog-timeout", "30"),)),
    Case("stall-over-watchdog", ("stream_stall_s = 400.0", "answer_timeout_s = 4000.0")),
    Case(
        "engine-timeouts", environment={"SGLANG_REQ_RUNNING_TIMEOUT": "60", "SGLANG_REQ_WAITING_TIMEOUT": "1"}
    ),
    Case("environment-overruled", environment={"SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "600"}),
    Case("drain-under-budget", ("gateway.drain_timeout_s = 0.5",)),
    Case("probes-too-rare", ("gateway.health_interval_s = 10.0", "lease.look_interval_s = 30.0")),
    Case("limit-never-reached", ("gateway.body_timeout_s = 400.0", "access.url_timeout_s = 301.0")),
    Case("answer-under-stall", ("answer_timeout_s = 20.0",)),
    Case("due-too-late", ("standard.long_wait_s = 3.0", "realtime.short_wait_s = 1.0")),
    Case("more-than-slots", ("schedule.max_in_flight = 100",)),
    Case("in-flight-bounds", ("schedule.min_in_flight = 80",)),
    Case("sheds-everybody", ("shed.realtime = true", "shed.standard = true", "shed.batch = true")),
    Case("images-over-pool", ("engine.max_total_tokens = 4096", "model.max_pixels = 1003520"), model=QWEN),
    Case("lease-under-usual", ("engine.max_total_tokens = 8192",), model=QWEN),
    Case("lease-under-usual", ("default_max_tokens.text_only = 9000", "lease.cap = 0.05"), model=QWEN),
    Case("lease-under-usual", ("default_max_tokens.high_res = 40000",), model=QWEN),
    Case("images-over-lease", ("access.max_images = 8",), model=QWEN),
    Case("images-over-lease", ("lease.cap = 0.4",), model=QWEN),
    Case(
        "affinity-without-cache", ("engine.prefill.count = 2", extra("--disable-radix-cache", role="prefill"))
    ),
    Case("fallback-to-itself", ('gateway.host = "0.0.0.0"', 'fallback.url = "http://127.0.0.1:8000/v1"')),
    Case("fallback-to-itself", ('fallback.url = "http://localhost:8000/v1"',)),
    Case("retries-add-load", ("retry.budget_share = 0.5",)),
    Case("retries-suspect-the-pair", ("retry.max_attempts = 6",)),
    Case("retries-suspect-all", ("retry.budget_least = 50",)),
    Case("ttft-edges", ("standard.ttft_budget_s = 2.5",)),
    Case("ttft-edges", (extra("--bucket-time-to-first-token", "1", "2", "4"),)),
    Case("itl-edges", (extra("--bucket-inter-token-latency", "0.04", "0.06", "0.1", role="decode"),)),
    Case("budget-no-edge", ("realtime.ttft_budget_s = 0.7",)),
    Case("health-generates", inside={"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "1"}),
    Case("drill-switched-on", environment={"SGLANG_TEST_DISAGG_FAILURE_PROB": "0.2"}),
    Case("tokens-in-bundles", (extra("--stream-interval", "4"),)),
    Case("engine-key", (extra("--api-key", "k" * 16),)),
    Case("engine-admin-key", (extra("--admin-api-key", "k" * 16),)),
    Case("engines-open", ('engine.host = "0.0.0.0"',)),
    Case("gateway-open", ('gateway.host = "0.0.0.0"',)),
    Case("fallback-path", ('fallback.url = "http://10.0.0.9:30000"',)),
    Case("fallback-path", ('fallback.url = "https://host/openai/"',)),
    Case("ledger-open", ('shared.url = "redis://10.0.0.5"',)),
    Case("ledger-open", ('shared.url = "rediss://user@ledger.internal:6380/2"',)),
    Case("ledger-ttl-short", (LEDGER, "shared.ttl_s = 1.0")),
    Case("ledger-ttl-long", (LEDGER, "shared.ttl_s = 60.0")),
    Case("ledger-stops-all", (LEDGER, "shared.alone = false")),
    Case("ledger-engine-name", (LEDGER, *attached("localhost:30001", "127.0.0.1:30002", "10.0.0.3:30000"))),
    Case("decode-twice", attached("127.0.0.1:30001", "localhost:30001")),
    Case("decode-twice", attached("10.0.0.2:30001", "10.0.0.3:30001", "10.0.0.2:30001/")),
)
