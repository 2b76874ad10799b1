"""The service as data: one model, its engines, the gateway in front, every limit. Read from serve.toml."""

import re
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from serving.admin_config import AdminConfig
from serving.fallback_config import FallbackConfig
from serving.pools_config import PairingConfig, PoolConfigs
from serving.retry_config import RetryConfig
from serving.schedule_config import (
    BatchConfig,
    LeaseConfig,
    RealtimeConfig,
    ScheduleConfig,
    ShedConfig,
    SloConfig,
)
from serving.shared_config import SharedConfig
from serving.storage_config import StorageConfig
from serving.store_url import StoreUrl
from toolkit.core.config import Section
from toolkit.core.sample import SloClass, WorkloadClass

MB = 1_000_000

PRIORITY_LEVELS = 12
"""Priorities that engines are given, from 0; the highest goes first. Each is a label of SGLang's metrics, so they are few."""

Handover = Literal["ppm", "png", "webp", "jpeg"]
"""Files in which prepared pixels can travel to the engine."""


_HOST_NAME = re.compile(r"([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
_HOST_PATTERN = re.compile(r"(\*\.)?([a-z0-9_-]+\.)*[a-z0-9_-]*[a-z_-][a-z0-9_-]*")


def _bindable(host: str) -> str:
    """Whether it resolves is seen where it is bound."""
    try:
        ip_address(host)
    except ValueError:
        if not _HOST_NAME.fullmatch(host) or host.replace(".", "").isdigit():
            raise ValueError(
                "write an address of this machine or a host name alone, as 127.0.0.1 or 0.0.0.0 (all); the port has a key of its own"
            ) from None
    return host


BindHost = Annotated[str, AfterValidator(_bindable)]
"""An address or a name that a server can bind."""


class ModelConfig(Section):
    """What is served."""

    path: str = Field(
        "",
        description="Model folder. Empty: on a machine without a GPU, a tiny random vision-language model that is built once.",
    )
    served_name: str = Field("", description="Name in the API. Empty: the folder's name.")
    family: Literal["auto", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "llava", "internvl_chat", "text"] = Field(
        "auto", description="Image-processor family. auto: read from the model's config.json."
    )
    min_pixels: int = Field(
        0, ge=0, description="Smallest image area the processor keeps; 0: read from preprocessor_config.json."
    )
    max_pixels: int = Field(
        0, ge=0, description="Largest image area the processor keeps; 0: read from preprocessor_config.json."
    )


class RoleConfig(Section):
    """One role's instances: on GPUs a list of ids split by tp, without a GPU a count."""

    gpus: str = Field("", description="GPU ids, as 0-3 or 0,2. One instance per tp ids.")
    count: int = Field(1, ge=1, le=64, description="Instances where there is no GPU.")
    extra_args: tuple[str, ...] = Field(
        (), description="Further SGLang flags for this role, as written on its command line."
    )


class EngineConfig(Section):
    """How the SGLang engines are started, or where they already run."""

    kind: Literal["auto", "gpu", "cpu", "simulated"] = Field(
        "auto",
        description="auto: gpu where an NVIDIA GPU is present, else cpu. simulated: stand-ins that compute no model.",
    )
    preset: Literal["cpu_tiny", "h100_like"] = Field(
        "cpu_tiny", description="How fast simulated engines are (serving/engines/simulated/model.py)."
    )
    python: str = Field(
        "",
        description="Interpreter of the engine environment. Empty: .venv-engine/bin/python beside the toolkit, else this interpreter.",
    )
    host: BindHost = Field("127.0.0.1", description="Address the engines bind and are reached at.")
    base_port: int = Field(0, ge=0, le=65000, description="First engine port; 0: free ports are chosen.")
    transfer: Literal["tcp", "rdma"] = Field("tcp", description="Mooncake transport of the KV cache.")
    ib_device: str = Field("", description="RDMA devices, as mlx5_0,mlx5_1; needed for rdma.")
    tp: int = Field(1, ge=1, description="Tensor parallel size of every instance.")
    priority: bool = Field(
        False,
        description=(
            "Whether engines get the order of requests too (x-override-priority): they are started with"
            " --enable-priority-scheduling. Those that run already must have been, with SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES=1."
        ),
    )
    prefill: RoleConfig = RoleConfig()
    decode: RoleConfig = RoleConfig()
    attach_prefill: tuple[str, ...] = Field(
        (), description="URLs of prefill engines that already run, as http://host:port[?bootstrap_port=8998]."
    )
    attach_decode: tuple[str, ...] = Field((), description="URLs of decode engines that already run.")
    max_total_tokens: int = Field(
        32768, ge=1024, description="KV pool of one CPU engine, tokens (GPU engines size their own)."
    )
    max_running_requests: int = Field(64, ge=1, description="Requests one CPU engine runs at once.")
    extra_args: tuple[str, ...] = Field((), description="Further SGLang flags for every instance.")
    ready_timeout_s: float = Field(300.0, gt=0, description="Longest wait for an engine to become ready.")

    @property
    def attached(self) -> bool:
        """Whether the engines run already and are only fronted."""
        return bool(self.attach_prefill or self.attach_decode)

    @model_validator(mode="after")
    def _whole(self) -> "EngineConfig":
        if bool(self.attach_prefill) != bool(self.attach_decode):
            raise ValueError("attach_prefill and attach_decode go together: a request needs one of each")
        if self.transfer == "rdma" and not self.ib_device and not self.attached:
            raise ValueError('transfer = "rdma" needs ib_device, as mlx5_0 (list them with ibv_devices)')
        return self


class GatewayConfig(Section):
    """The HTTP front."""

    host: BindHost = Field(
        "127.0.0.1",
        description="Address the gateway binds. It has no TLS: put a proxy in front before opening it.",
    )
    port: int = Field(8000, ge=0, le=65535, description="Gateway port; 0: a free one.")
    api_keys_file: str = Field(
        "",
        description='File of `name = "key"` TOML lines; keys of at least 16 characters. Empty: no key is asked for.',
    )
    allowed_fields: tuple[Literal["stop_regex"], ...] = Field(
        (),
        description="Request fields to open that are closed because one request could stop all: stop_regex.",
    )
    max_body_bytes: int = Field(64 * MB, gt=0, description="Largest request body.")
    max_text_bytes: int = Field(
        4 * MB,
        gt=0,
        description="Largest body besides its images: JSON without data URIs of 64 kB and more; a million tokens of text.",
    )
    body_timeout_s: float = Field(30.0, gt=0, le=86_400, description="Longest upload of one body.")
    drain_timeout_s: float = Field(
        3.0,
        ge=0,
        le=86_400,
        description="Longest wait for open requests at shutdown. Behind a load balancer: as long as an answer may take.",
    )
    drain_lead_s: float = Field(
        0.0,
        ge=0,
        le=86_400,
        description="Before that: time in which /readyz says 503 and requests are still taken, so that a load balancer sees it first.",
    )
    health_interval_s: float = Field(
        2.0, ge=0.01, le=3600, description="Time between two looks at each engine."
    )


class AccessConfig(Section):
    """Limits on images, checked from headers before any decode."""

    max_image_bytes: int = Field(32 * MB, gt=0, description="Largest image file.")
    max_image_pixels: int = Field(
        64_000_000, gt=0, description="Largest width x height; 8000x6000 passes, 13000x13000 does not."
    )
    max_side_ratio: float = Field(
        200.0, gt=1, description="Largest longer/shorter side; the Qwen-VL processors refuse above 200."
    )
    max_images: int = Field(16, ge=1, description="Images per request.")
    max_sos_markers: int = Field(
        100,
        ge=1,
        description="Scans in one JPEG; a normal progressive file has about 10, a scan bomb thousands.",
    )
    workers: int = Field(
        0,
        ge=0,
        le=1024,
        description="Small images decoded at once, and large ones where memory_mb lets them; 0: one per core.",
    )
    max_queued_images: int = Field(
        64, ge=1, description="Images waiting to be prepared, per lane; beyond: 429."
    )
    memory_mb: int = Field(
        768,
        gt=0,
        le=10_000_000,
        description=(
            "Memory, MB, for all work in progress and cache_mb: uploads, downloads, decoding. What does not fit waits"
            " unread, or is refused (429); an image over its share of it: 413."
        ),
    )
    decode_cpu_s: float = Field(
        1.0,
        gt=0,
        le=3600,
        description="CPU time that decoding any image may take, seconds; then it is ended (413).",
    )
    decode_cpu_ns_per_pixel: float = Field(
        200.0,
        ge=0,
        le=100_000,
        description="CPU time that it may take besides, nanoseconds per pixel of its header.",
    )
    cache_mb: int = Field(
        128,
        ge=0,
        description="Memory, MB, for prepared images: one that comes again is not decoded again. 0: none is kept.",
    )
    shared_cache_url: StoreUrl = Field(
        "",
        repr=False,
        description=(
            "Valkey or Redis where gateways share prepared images: redis://host:6379/0, rediss://user:password@host:6380/0"
            " (TLS), unix:///path/to/socket. Empty: none. Nobody else should reach it; slow or down, requests go on without it."
        ),
    )
    shared_cache_key_file: str = Field(
        "",
        description="File with a secret of 16 bytes or more, the same for all gateways, that seals what they share. Empty: a checksum only.",
    )
    shared_cache_ttl_s: int = Field(
        86_400, ge=1, le=31_536_000, description="How long an image stays in the shared cache."
    )
    shared_cache_timeout_ms: float = Field(
        50.0, gt=0, le=1000, description="Longest that an image waits for the shared cache."
    )
    shared_cache_max_entry_bytes: int = Field(
        8 * MB,
        ge=4096,
        le=512 * MB,
        description="Largest prepared image that is shared. With a shared cache 14 times as much of memory_mb is its own.",
    )
    decoder: Literal["auto", "portable", "fast"] = Field(
        "auto",
        description=(
            "What decodes and scales images: fast (the extra of that name: less CPU and memory), portable (Pillow alone),"
            " or auto: fast where it is installed."
        ),
    )
    handover: Handover = Field(
        "ppm",
        description=(
            "How prepared pixels travel to the engine. Without loss: ppm (uncompressed, 3 bytes a pixel, a tenth to a"
            " quarter of png's CPU; for links of 1 Gbit/s and more), webp (a sixth to a half of the bytes), png (for engines"
            " that read nothing else). With loss: jpeg (q95 4:4:4, 40-47 dB)."
        ),
    )
    url_timeout_s: float = Field(
        5.0, gt=0, description="Total time of one image download, redirects included."
    )
    max_redirects: int = Field(5, ge=0, description="Redirects followed; each target is checked again.")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="host:port pairs that may be fetched though they are private or use another port."
    )
    only_hosts: tuple[str, ...] = Field(
        (),
        description="If set, images are fetched from these hosts and those of allowed_hosts alone: names, *.names, addresses, networks.",
    )
    blocked_hosts: tuple[str, ...] = Field(
        (),
        description="Never fetched from, whatever else is allowed: names, *.names, addresses; a network also blocks names that resolve into it.",
    )
    max_downloads: int = Field(128, ge=1, description="Image downloads at once; others wait their turn.")
    max_downloads_per_host: int = Field(
        16, ge=1, description="Of these, from one host; four times as many may wait, more: 429."
    )
    host_failures: int = Field(
        5,
        ge=1,
        description="Downloads of one host that fail in a row before it is left alone: for 2 s, then twice as long after each failed trial, up to 60 s.",
    )
    high_res_pixels: int = Field(
        4_000_000, gt=0, description="Source area from which a request counts as high_res."
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _host_and_port(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            name, sep, port = host.rpartition(":")
            plain = name and not any(character <= " " or character in "/\\@?#" for character in name)
            if not sep or not plain or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise ValueError(f"{host!r}: write it as host:port, as 10.0.0.5:8080 or cdn.internal:443")
        return tuple(host.lower() for host in hosts)

    @field_validator("only_hosts", "blocked_hosts")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not _HOST_PATTERN.fullmatch(pattern.lower()) and not _is_network(pattern):
                raise ValueError(
                    f"{pattern!r}: write a name, *.name, an address or a network; other scripts as xn--"
                )
        return tuple(pattern.lower() for pattern in patterns)

    @property
    def set_aside_bytes(self) -> int:
        """The part of memory_mb that is for no work: the cache's, and for the shared one four look-ups and its writes."""
        return self.cache_mb * MB + (14 * self.shared_cache_max_entry_bytes if self.shared_cache_url else 0)


BODY_COPIES = 2
"""A body is in memory as it came, and so are its images as files, which are three quarters of it."""


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def least_memory_mb(access: AccessConfig, max_body_bytes: int) -> int:
    """The smallest access.memory_mb at which one body and one image file of the largest sizes fit."""
    work_bytes = 16 * max(BODY_COPIES * max_body_bytes / 5, access.max_image_bytes)
    return -int(-(access.set_aside_bytes + work_bytes) // MB)


class DefaultTokens(Section):
    """max_tokens written into a request that names none, by workload class."""

    text_only: int = Field(512, ge=1, description="For text.")
    image_short: int = Field(256, ge=1, description="For one image and a short question.")
    multi_image_long: int = Field(1024, ge=1, description="For several images.")
    high_res: int = Field(512, ge=1, description="For large images.")

    def of(self, workload_class: WorkloadClass) -> int:
        """Raises AttributeError for `unclassified`: such a request never needs it."""
        return int(getattr(self, workload_class.value))


class JournalConfig(Section):
    """The record of every request."""

    max_file_bytes: int = Field(64 * MB, gt=0, description="Size at which the journal turns over.")
    keep_files: int = Field(8, ge=1, description="Journal files kept.")


class SupervisorConfig(Section):
    """How dead engines come back."""

    backoff_s: float = Field(1.0, gt=0, description="Wait before the first restart; doubles each time.")
    max_backoff_s: float = Field(30.0, gt=0, description="Longest wait before a restart.")
    crash_loop_exits: int = Field(
        4, ge=1, description="Exits within crash_loop_window_s after which the service stops."
    )
    crash_loop_window_s: float = Field(300.0, gt=0, description="Window of crash_loop_exits.")
    stop_grace_s: float = Field(
        6.0,
        gt=0,
        description="Time from SIGTERM to SIGKILL; SGLang looks for the signal every 5 s. All is down within 10 s, but for a longer gateway.drain_timeout_s.",
    )
    log_max_bytes: int = Field(32 * MB, gt=0, description="Size at which a process log turns over.")
    log_keep_files: int = Field(3, ge=1, description="Old log files kept per process.")


class ServeConfig(Section):
    """Everything `toolkit serve` needs; `toolkit config show` prints the effective one."""

    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    gateway: GatewayConfig = GatewayConfig()
    admin: AdminConfig = AdminConfig()
    access: AccessConfig = AccessConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    pairing: PairingConfig = PairingConfig()
    pools: PoolConfigs = Field(
        (),
        description=(
            "Prefill instances by kind of request, one table [[pools]] each: name, prefills, classes, share, fallback"
            " (docs/pools.md). Empty: every prefill serves every request."
        ),
    )
    lease: LeaseConfig = LeaseConfig()
    retry: RetryConfig = RetryConfig()
    fallback: FallbackConfig = FallbackConfig()
    shed: ShedConfig = ShedConfig()
    realtime: RealtimeConfig = Field(
        RealtimeConfig(), description="The SLO class realtime (header x-slo-class): conversations."
    )
    standard: SloConfig = Field(SloConfig(), description="The SLO class standard: image and text.")
    batch: BatchConfig = Field(
        BatchConfig(),
        description="The SLO class batch: offline work, throughput only; the budget just bounds it.",
    )
    default_slo_class: SloClass = Field(SloClass.STANDARD, description="For requests without x-slo-class.")
    default_max_tokens: DefaultTokens = DefaultTokens()
    stream_stall_s: float = Field(
        60.0, gt=0, le=86_400, description="Longest silence between two events of an open stream."
    )
    answer_timeout_s: float = Field(
        600.0, gt=0, le=86_400, description="Longest wait for a non-streamed answer after its prefill."
    )
    journal: JournalConfig = JournalConfig()
    storage: StorageConfig = StorageConfig()
    shared: SharedConfig = SharedConfig()
    supervisor: SupervisorConfig = SupervisorConfig()
    runs_dir: Path = Field(Path("runs"), description="Where run folders (logs, journal, reports) are made.")
    cache_dir: Path | None = Field(
        None, description="Where the tiny model is kept. Empty: $XDG_CACHE_HOME/mm-serving-toolkit."
    )

    @model_validator(mode="after")
    def _largest_fit(self) -> "ServeConfig":
        least = least_memory_mb(self.access, self.gateway.max_body_bytes)
        if self.access.memory_mb < least:
            raise ValueError(
                f"access.memory_mb = {self.access.memory_mb} is too little for one request of the largest size: set it to"
                f" {least} or more, or lower gateway.max_body_bytes, access.max_image_bytes, access.cache_mb or access.shared_cache_max_entry_bytes"
            )
        return self

    def slo(self, slo_class: SloClass) -> SloConfig:
        """What the class promises."""
        section: SloConfig = getattr(self, slo_class.value)
        return section

    def budget_s(self, slo_class: SloClass) -> float:
        """The TTFT budget of a class, seconds."""
        return self.slo(slo_class).ttft_budget_s
