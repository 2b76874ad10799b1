"""SGLang command lines and environments, as pure values: configuration in, what to start out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serving.config import PRIORITY_LEVELS, EngineConfig, RoleConfig, ServeConfig
from serving.engines import gpus
from serving.service import EngineEndpoint

CPU_HOST = Path(__file__).parent / "cpu_host"

# Histogram edges where SLO thresholds are: SGLang's own have no 3 s for TTFT and no 50 ms between tokens, so a
# threshold would fall inside a bucket. The rest of the lists are SGLang's (metrics_collector.py:1966, :2014).
TTFT_BUCKETS = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2, 3, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
ITL_BUCKETS = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.08, 0.1, 0.2,
               0.4, 0.6, 0.8, 1, 2, 4, 6, 8)  # fmt: skip

# One engine waits for the other's half of a transfer for 300 s by default. The gateway aborts both legs when a
# request's budget ends; these only bound what is left of a request whose gateway died, and hold its KV pages that
# long. Above the longest healthy wait (a full decode queue), far below the default.
BOOTSTRAP_TIMEOUT_S = 60
WAITING_TIMEOUT_S = 60
# Decode asks each prefill's bootstrap server this often and gives up on it after two misses: 4 s to fail the
# requests of a dead prefill, with the default 5 s it is 10.
HEARTBEAT_INTERVAL_S = 2
SIMULATED_PIXELS = (3136, 200_704)
"""Smallest and largest image area of a simulated engine: the tiny model's."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the builders must know of the machine."""

    gpu: bool
    python: str
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """One engine to start. env is laid over the launcher's own environment."""

    name: str
    role: Literal["prefill", "decode"]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    endpoint: EngineEndpoint


@dataclass(frozen=True, slots=True)
class _Instance:
    number: int
    group: gpus.GpuGroup | None  # None: without a GPU


def launches(
    config: ServeConfig, host: Host, model_path: str, model_name: str, ports: Sequence[int]
) -> tuple[Launch, ...]:
    """Prefills first, then decodes. `ports`: as many as ports_needed says. Raises UsageFault for wrong GPU ids."""
    take = iter(ports)
    prefills, decodes = _instances(config.engine, host)
    return (
        *(_prefill(config.engine, host, model_path, model_name, one, take) for one in prefills),
        *(_decode(config.engine, host, model_path, model_name, one, take) for one in decodes),
    )


def ports_needed(config: EngineConfig, host: Host) -> int:
    """Two for each prefill (HTTP, bootstrap), one for each decode."""
    prefills, decodes = _instances(config, host)
    return 2 * len(prefills) + len(decodes)


def _instances(config: EngineConfig, host: Host) -> tuple[list[_Instance], list[_Instance]]:
    if not host.gpu:
        return (
            [_Instance(number, None) for number in range(config.prefill.count)],
            [_Instance(number, None) for number in range(config.decode.count)],
        )
    # One instance of each role on the first GPUs when none are named.
    prefill_gpus = config.prefill.gpus or f"0-{config.tp - 1}"
    decode_gpus = config.decode.gpus or f"{config.tp}-{2 * config.tp - 1}"
    prefill, decode = gpus.share(prefill_gpus, decode_gpus, config.tp)
    return (
        [_Instance(number, group) for number, group in enumerate(prefill)],
        [_Instance(number, group) for number, group in enumerate(decode)],
    )


def _prefill(
    config: EngineConfig, host: Host, model_path: str, model_name: str, one: _Instance, ports: Iterator[int]
) -> Launch:
    port, bootstrap = next(ports), next(ports)
    endpoint = EngineEndpoint(
        name=f"prefill-{one.number}",
        role="prefill",
        url=f"http://{reached_at(config.host)}:{port}",
        bootstrap_host=connect_to(config.host),
        bootstrap_port=bootstrap,
    )
    if host.simulated:
        stand_in = (
            *_simulated(config, host, model_name, "prefill", port),
            "--bootstrap-port",
            str(bootstrap),
        )
        argv = (*stand_in, *_extra(config, config.prefill))
        return Launch(endpoint.name, "prefill", argv, _environment(config, host), endpoint)
    argv = (
        *_common(config, host, model_path, model_name, one, port),
        "--disaggregation-mode", "prefill",
        "--disaggregation-bootstrap-port", str(bootstrap),
        *_extra(config, config.prefill),
    )  # fmt: skip
    return Launch(endpoint.name, "prefill", argv, _environment(config, host), endpoint)


def _decode(
    config: EngineConfig, host: Host, model_path: str, model_name: str, one: _Instance, ports: Iterator[int]
) -> Launch:
    port = next(ports)
    endpoint = EngineEndpoint(
        name=f"decode-{one.number}", role="decode", url=f"http://{reached_at(config.host)}:{port}"
    )
    if host.simulated:
        stand_in = (*_simulated(config, host, model_name, "decode", port), *_extra(config, config.decode))
        return Launch(endpoint.name, "decode", stand_in, _environment(config, host), endpoint)
    argv = [*_common(config, host, model_path, model_name, one, port), "--disaggregation-mode", "decode"]
    if one.group is None:
        # The default keeps retracted requests in memory pinned by CUDA (pool_host/common.py calls torch.cuda.cudart).
        argv += ["--disaggregation-decode-retraction-backup", "cpu_tensor"]
    argv += _extra(config, config.decode)
    return Launch(endpoint.name, "decode", tuple(argv), _environment(config, host), endpoint)


def _common(
    config: EngineConfig, host: Host, model_path: str, model_name: str, one: _Instance, port: int
) -> tuple[str, ...]:
    return (
        host.python, "-m", "cpu_engine" if one.group is None else "sglang.launch_server",
        "--model-path", model_path,
        "--served-model-name", model_name,
        "--host", config.host,
        "--port", str(port),
        "--disaggregation-transfer-backend", "mooncake_tcp" if config.transfer == "tcp" else "mooncake",
        *(("--disaggregation-ib-device", config.ib_device) if config.transfer == "rdma" else ()),
        "--enable-metrics",
        "--bucket-time-to-first-token", *map(str, TTFT_BUCKETS),
        "--bucket-inter-token-latency", *map(str, ITL_BUCKETS),
        # The supervisor sends a real image through the whole path instead.
        "--skip-server-warmup",
        *(_by_priority() if config.priority else ()),
        *(_on_cpu(config) if one.group is None else _on_gpus(config, one.group)),
    )  # fmt: skip


def _by_priority() -> tuple[str, ...]:
    return (
        "--enable-priority-scheduling",
        # On by default with priorities: a request that is preempted is prefilled again, its KV transfer broken.
        "--disable-priority-preemption",
        # Who brings none is the prober or an engine's own check, and would come last for ever.
        "--default-priority-value", str(PRIORITY_LEVELS - 1),
    )  # fmt: skip


def _simulated(
    config: EngineConfig, host: Host, model_name: str, role: Literal["prefill", "decode"], port: int
) -> tuple[str, ...]:
    return (
        host.python, "-m", "serving.engines.simulated",
        "--role", role,
        "--host", config.host,
        "--port", str(port),
        "--model-name", model_name,
        "--preset", config.preset,
        "--max-total-tokens", str(config.max_total_tokens),
        "--max-running-requests", str(config.max_running_requests),
        "--min-pixels", str(SIMULATED_PIXELS[0]),
        "--max-pixels", str(SIMULATED_PIXELS[1]),
        "--bucket-time-to-first-token", *map(str, TTFT_BUCKETS),
        "--bucket-inter-token-latency", *map(str, ITL_BUCKETS),
    )  # fmt: skip


def _on_gpus(config: EngineConfig, group: gpus.GpuGroup) -> tuple[str, ...]:
    return (
        "--tp-size", str(config.tp),
        "--base-gpu-id", str(group.first),
        "--gpu-id-step", str(group.step),
    )  # fmt: skip


def _on_cpu(config: EngineConfig) -> tuple[str, ...]:
    return (
        "--device", "cpu",
        "--dtype", "float32",
        # Without AMX only the plain torch kernels exist for the CPU.
        "--attention-backend", "torch_native",
        "--mm-attention-backend", "sdpa",
        # The pool's size is given in tokens; the fraction only has to leave room on a small machine.
        "--mem-fraction-static", "0.05",
        "--max-total-tokens", str(config.max_total_tokens),
        "--max-running-requests", str(config.max_running_requests),
        # Overlap wants CUDA events (prefill.py:1496).
        "--disable-overlap-schedule",
        # Without it an idle scheduler spins on one core.
        "--sleep-on-idle",
    )  # fmt: skip


def _extra(config: EngineConfig, role: RoleConfig) -> tuple[str, ...]:
    """Last on the line: argparse lets a later flag win."""
    return (*config.extra_args, *role.extra_args)


def _environment(config: EngineConfig, host: Host) -> dict[str, str]:
    env = {
        # GET /health answers from the process's state; by default it runs a generation of at least a second.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
        "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": str(BOOTSTRAP_TIMEOUT_S),
        "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": str(WAITING_TIMEOUT_S),
        "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": str(HEARTBEAT_INTERVAL_S),
        "MOONCAKE_PROTOCOL": config.transfer,
    }
    if config.priority:
        env["SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES"] = "1"
    if config.transfer == "tcp":
        env["MC_FORCE_TCP"] = "1"
    if host.simulated:
        return {name: env[name] for name in env if name.startswith("SGLANG_")}
    if config.host != "0.0.0.0":  # noqa: S104 (compared, not bound)
        env["SGLANG_HOST_IP"] = config.host  # what engines tell each other; else the first outward address
    if not host.gpu:
        env |= {
            "PYTHONPATH": str(CPU_HOST),
            "OMP_NUM_THREADS": "1",  # several engines share few cores; tiny matrices gain nothing from more
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
        }
    return env


def connect_to(host: str) -> str:
    """The address to connect to for a server bound to `host`."""
    return "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104 (compared, not bound)


def reached_at(host: str) -> str:
    """The same as it stands in a URL."""
    address = connect_to(host)
    return f"[{address}]" if ":" in address else address
