"""Looks at this machine. Nothing here raises because a thing is absent: then the fact is None or empty."""

import ctypes
import importlib
import importlib.util
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from importlib.metadata import distributions, version
from pathlib import Path
from typing import TypeVar

from serving import service, supervisor
from serving.doctor import ports
from serving.doctor.facts import (
    Clock,
    Cpu,
    Decoder,
    Disk,
    Engine,
    Facts,
    Generator,
    Memory,
    Port,
    Service,
    Transfer,
)
from serving.topology import ENGINE_PYTHON, PORTS, ROOT
from serving.transfer_run import ib_devices
from toolkit.core.errors import EnvironmentFault, ToolkitError

T = TypeVar("T")
DEFAULT_PORTS = ((8000, "the gateway"), (8089, "bench --web"), (5557, "bench --master"))
ENGINE_DISTRIBUTIONS = re.compile(r"sglang|torch|transformers|mooncake-transfer-engine.*")
# Prefixes and names of variables that the toolkit, SGLang, Mooncake or their libraries act upon.
PREFIXES = ("TOOLKIT_", "MC_", "MOONCAKE_", "SGLANG_", "HF_", "OMP_", "NCCL_")
NAMES = ("CUDA_VISIBLE_DEVICES", "XDG_CACHE_HOME", "PYTHONPATH", "TORCH_INDEX", "LD_LIBRARY_PATH", "http_proxy",
         "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "TRANSFORMERS_OFFLINE")  # fmt: skip
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW", re.IGNORECASE)
ASK_S = 1.0
SMI_S = 2.0
CGROUP = Path("/sys/fs/cgroup")


def facts(
    runs: Path,
    env: Mapping[str, str],
    generator: Generator | None = None,
    transfer: Transfer | None = None,
    root: Path = ROOT,
) -> Facts:
    """Everything about this machine now; what other parts measured is handed in."""
    listening = ports.listening()
    return Facts(
        toolkit=attempt(lambda: version("mm-serving-toolkit")) or "unknown",
        python=platform.python_version(),
        engine=engine(root),
        cpu=attempt(cpu),
        memory=attempt(memory),
        gpus=attempt(gpus) or (),
        rdma=attempt(ib_devices) or (),
        disk=attempt(lambda: disk(runs)),
        open_files=attempt(lambda: resource.getrlimit(resource.RLIMIT_NOFILE)),
        ports=attempt(lambda: default_ports(listening)) or (),
        engine_ports_free=sum(port not in listening for port in PORTS) if listening else None,
        decoder=attempt(decoder),
        uvloop=attempt(uvloop) or "",
        clock=attempt(clock),
        generator=generator,
        transfer=transfer,
        service=running(runs),
        environment=settings(env),
    )


def attempt(look: Callable[[], T]) -> T | None:
    """What it returns; None where the machine has no such thing, or shows it differently."""
    try:
        return look()
    except (OSError, ValueError, LookupError, ImportError, AttributeError, subprocess.SubprocessError):
        return None


def engine(root: Path = ROOT) -> Engine | None:
    """From the files of .venv-engine, or of this environment where SGLang is in it: no interpreter is started."""
    python = root / ENGINE_PYTHON
    venv = python.parent.parent
    if python.exists():
        sites = [str(path) for path in venv.glob("lib/python*/site-packages")]
        return Engine(str(python), (venv / "installed").exists(), packages(sites))
    if importlib.util.find_spec("sglang") is not None:
        return Engine(sys.executable, True, packages(sys.path))
    return None


def packages(sites: list[str]) -> dict[str, str]:
    """Versions of what an engine needs, as installed there."""
    named = attempt(lambda: {one.name: one.version for one in distributions(path=sites)}) or {}
    return {name: of for name, of in named.items() if name and ENGINE_DISTRIBUTIONS.fullmatch(name)}


def cpu() -> Cpu:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    governor = attempt(lambda: _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")) or ""
    usable = len(os.sched_getaffinity(0))
    return Cpu(
        model or platform.machine(),
        os.cpu_count() or usable,
        usable,
        os.getloadavg()[0],
        attempt(quota),
        governor,
    )


def quota() -> float | None:
    """Cores by cgroup v2 or v1; None where there is no limit."""
    limit = attempt(lambda: _text(CGROUP / "cpu.max").split())
    if limit is None:
        limit = [_text(CGROUP / f"cpu/cpu.cfs_{what}_us") for what in ("quota", "period")]
    return None if limit[0] in ("max", "-1") else int(limit[0]) / int(limit[1])


def memory() -> Memory:
    lines = _text("/proc/meminfo").splitlines()
    told = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    shm = attempt(lambda: shutil.disk_usage("/dev/shm"))  # noqa: S108 (looked at, not written)
    total = told["MemTotal"]
    limit, used = attempt(
        lambda: (int(_text(CGROUP / "memory.max")), int(_text(CGROUP / "memory.current")))
    ) or (
        attempt(
            lambda: tuple(
                int(_text(CGROUP / f"memory/memory.{what}_in_bytes")) for what in ("limit", "usage")
            )
        )
        or (total, 0)
    )
    return Memory(
        total,
        told["MemAvailable"],
        limit if limit < total else None,  # v1 says a huge number for none
        used,
        shm.total if shm else 0,
        shm.free if shm else 0,
    )


def gpus() -> tuple[str, ...]:
    """Name, memory and driver of each, as nvidia-smi tells them."""
    found = shutil.which("nvidia-smi")
    if found is None:
        return ()
    command = [found, "--query-gpu=index,name,memory.total,driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_S, check=False)
    return tuple(done.stdout.strip().splitlines()) if done.returncode == 0 else ()


def disk(runs: Path) -> Disk:
    """Of the folder, or of the nearest above it that exists."""
    folder = runs.resolve()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return Disk(str(runs), shutil.disk_usage(there).free)


def default_ports(listening: Mapping[int, str]) -> tuple[Port, ...]:
    taken = ports.holders([listening[number] for number, _ in DEFAULT_PORTS if number in listening])
    return tuple(
        Port(number, purpose, taken.get(listening[number], "another user") if number in listening else "")
        for number, purpose in DEFAULT_PORTS
    )


def decoder() -> Decoder:
    from PIL import __version__, features

    from serving.access.decode import MARGIN
    from serving.access.decoder import choose
    from serving.access.pillow import PLUGINS

    plain = choose("portable").libraries
    fast, lacks = tuple[str, ...](), ""
    try:
        fast = tuple(name for name in choose("fast").libraries if name not in plain)
    except EnvironmentFault as fault:
        lacks = fault.message
    turbo = features.version_feature("libjpeg_turbo") if features.check_feature("libjpeg_turbo") else ""
    formats = (plugin.__name__.removeprefix("PIL.").removesuffix("ImagePlugin") for plugin in PLUGINS)
    return Decoder(__version__, turbo or "", tuple(map(str.upper, formats)), MARGIN, fast, lacks)


def uvloop() -> str:
    importlib.import_module("uvloop")
    return version("uvloop")


def clock() -> Clock:
    late = []
    for _ in range(21):
        begun = time.monotonic()
        time.sleep(0.001)
        late.append(time.monotonic() - begun - 0.001)
    return Clock(time.get_clock_info("monotonic").resolution, statistics.median(late), has_timerfd())


def has_timerfd() -> bool:
    descriptor = ctypes.CDLL(None).timerfd_create(time.CLOCK_MONOTONIC, 0)
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True


def running(runs: Path) -> Service | None:
    """The service that RUNS/latest names; None where there is none."""
    folder = runs / "latest"
    try:
        told = service.Service.read(folder)
    except ToolkitError:
        return None
    command = attempt(lambda: Path(f"/proc/{told.launcher_pid}/cmdline").read_bytes().split(b"\0")) or []
    if b"serve" not in command:
        return Service(str(folder), told.gateway_url, "ended")
    try:
        # A proxy of the environment is for others than this machine's own gateway.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{told.gateway_url}/readyz", timeout=ASK_S):
            return Service(str(folder), told.gateway_url, "ready")
    except (OSError, ValueError) as fault:  # an answer other than 200 is one too
        rows = supervisor.processes(folder)
        if any(row.get("state") == "starting" and row.get("starts") == 1 for row in rows) or not rows:
            waiting = tuple(str(row["name"]) for row in rows if row.get("state") != "ready")
            return Service(str(folder), told.gateway_url, "starting", waiting)
        spoke = isinstance(fault, urllib.error.HTTPError)
        return Service(str(folder), told.gateway_url, "not ready" if spoke else "silent")


def settings(env: Mapping[str, str]) -> dict[str, str]:
    """What changes behaviour, without secrets."""
    chosen = {name: value for name, value in env.items() if name in NAMES or name.startswith(PREFIXES)}
    return {
        name: "(set)" if SECRET.search(name) else re.sub(r"//[^/@\s]*@", "//(login)@", value)
        for name, value in chosen.items()
    }


def _text(path: Path | str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace").strip()
