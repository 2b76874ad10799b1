"""From a configuration to what is started on this machine: interpreter, GPUs, ports, model, run folder.

Everything that looks at the machine is here; commands.py only combines.
"""

import errno
import importlib.util
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from serving.access.shared.secret import secret_of
from serving.binding import socket_for, unbindable
from serving.config import EngineConfig, ModelConfig, ServeConfig
from serving.engines import attach, commands, tiny_model
from serving.engines.commands import Host, Launch, reached_at
from serving.keys import Keys
from serving.pools_config import members
from serving.service import EngineEndpoint, Service
from serving.storage.target import target
from toolkit.core.errors import EnvironmentFault, UsageFault

ROOT = Path(__file__).resolve().parent.parent
SIMULATED = "simulated"
"""Stands where a model's folder and name would: no place shows a stand-in as something else."""
ENGINE_PYTHON = Path(".venv-engine/bin/python")

# Engines come back on the port they had, so it must not be one that the kernel hands to outgoing connections
# (32768 and up), nor one that Mooncake (15000-17000) or SGLang (22000-29999, network.py:205) choose for themselves.
PORTS = range(17_500, 22_000)


@dataclass(frozen=True, slots=True)
class Plan:
    """What `toolkit serve` starts. launches is empty when it only fronts engines."""

    config: ServeConfig
    launches: tuple[Launch, ...]
    engines: tuple[EngineEndpoint, ...]
    model_path: str
    model_name: str
    gateway_url: str
    api_key: str = field(default="", repr=False)

    def service(self) -> Service:
        return Service(
            config=self.config,
            engines=self.engines,
            gateway_url=self.gateway_url,
            model_path=self.model_path,
            model_name=self.model_name,
            started_at=time.time(),
            launcher_pid=os.getpid(),
            own_key=secrets.token_hex(16),
        )


def plan(config: ServeConfig, *, dry: bool = False) -> Plan:
    """Decide everything; builds the tiny model if it is needed and not there, unless `dry`.

    With `dry` a missing engine environment, GPU or model is no error: the commands can be read on a laptop.
    Raises UsageFault and EnvironmentFault, each before anything is started.
    """
    key = Keys.load(config.gateway.api_keys_file).any_key()
    if not dry and (store := target(config.storage)) is not None:
        store.open()  # so that a mistake is told before anything is started
    secret_of(config.access.shared_cache_key_file)  # the gateway's to use, but a mistake is said here
    config.fallback.key()  # as well
    Keys.load(config.admin.tokens_file)
    refuse_runs(config.runs_dir)
    port = config.gateway.port or free_ports(config.gateway.host, 1)[0]
    if not dry and config.gateway.port:
        refuse_taken(config.gateway.host, port)
    config = config.model_copy(update={"gateway": config.gateway.model_copy(update={"port": port})})
    gateway_url = f"http://{reached_at(config.gateway.host)}:{port}"
    if config.engine.attached:
        path = str(model_folder(config.model.path)) if config.model.path else ""
        name = config.model.served_name or Path(path).name
        endpoints = attach.endpoints(config.engine)
        refuse_pools(config, endpoints)
        return Plan(config, (), endpoints, path, name, gateway_url, key)

    simulated = config.engine.kind == "simulated"
    if simulated:
        config = config.model_copy(update={"model": stand_in_model(config.model)})
    host = Host(on_gpus(config.engine, dry=dry), engine_python(config.engine, dry=dry), simulated)
    path = _model(config, host, dry=dry)
    name = config.model.served_name or Path(path).name
    ports = _engine_ports(config.engine, host, port, dry=dry)
    launches = commands.launches(config, host, path, name, ports)
    endpoints = tuple(launch.endpoint for launch in launches)
    refuse_pools(config, endpoints)
    return Plan(config, launches, endpoints, path, name, gateway_url, key)


def refuse_pools(config: ServeConfig, engines: Sequence[EngineEndpoint]) -> None:
    """Raises UsageFault when a pool names a prefill that is not here, has none, or leaves one to nobody."""
    members(config.pools, (engine.name for engine in engines if engine.role == "prefill"))


def on_gpus(config: EngineConfig, *, dry: bool) -> bool:
    """Whether engines go onto GPUs: as configured; with `auto` when GPU ids are named or a GPU is here."""
    named = bool(config.prefill.gpus or config.decode.gpus)
    if config.kind in ("cpu", "simulated"):
        if named:
            raise UsageFault(
                f'GPU ids are named, but engine.kind = "{config.kind}": use --prefill-count and --decode-count.'
            )
        return False
    present = gpu_present()
    if not present and not dry and (named or config.kind == "gpu"):
        raise EnvironmentFault(
            "GPUs are asked for, and `nvidia-smi -L` shows none here. Without a GPU leave out --prefill and --decode; "
            "to see the commands for another machine add --dry-run."
        )
    return present or named or config.kind == "gpu"


def gpu_present() -> bool:
    """Whether nvidia-smi lists a GPU."""
    found = shutil.which("nvidia-smi")
    if found is None:
        return False
    with suppress(OSError, subprocess.TimeoutExpired):
        listed = subprocess.run([found, "-L"], capture_output=True, text=True, timeout=30, check=False)
        return listed.returncode == 0 and listed.stdout.startswith("GPU ")
    return False


def engine_python(config: EngineConfig, *, dry: bool) -> str:
    """The engine environment's interpreter. Raises EnvironmentFault when there is none with SGLang."""
    if config.kind == "simulated":
        return sys.executable
    if config.python:
        found = shutil.which(config.python)
        if found is None and not dry:
            raise EnvironmentFault(f"engine.python = {config.python!r}: no such program.")
        return found or config.python
    beside = ROOT / ENGINE_PYTHON
    if beside.exists() and (beside.parent.parent / "installed").exists():
        return str(beside)
    if importlib.util.find_spec("sglang") is not None:
        return sys.executable
    if dry:
        return str(ENGINE_PYTHON)
    raise EnvironmentFault(
        "The engine environment (.venv-engine) is not installed: run `make install` in the project's folder, "
        "or name an interpreter that has SGLang with --set engine.python=PATH."
    )


def stand_in_model(model: ModelConfig) -> ModelConfig:
    """What simulated engines serve: nothing, with the image rule of Qwen2.5-VL. Raises UsageFault when a model is named."""
    if model.path:
        raise UsageFault('engine.kind = "simulated" computes no model: leave out --model.')
    smallest, largest = commands.SIMULATED_PIXELS
    return model.model_copy(update={"family": "qwen2_5_vl", "min_pixels": smallest, "max_pixels": largest})


def model_folder(path: str) -> Path:
    """The folder, made absolute. Raises UsageFault when it holds no model."""
    folder = Path(path).expanduser().resolve()
    if not (folder / "config.json").is_file():
        raise UsageFault(
            f"model {path!r}: no folder with a config.json. Download the model first and name its folder."
        )
    return folder


def _model(config: ServeConfig, host: Host, *, dry: bool) -> str:
    if host.simulated:
        return SIMULATED
    if config.model.path:
        return config.model.path if dry else str(model_folder(config.model.path))
    if host.gpu:
        raise UsageFault(
            "No model is named: on GPUs use --model DIR. (The tiny one is for machines without a GPU.)"
        )
    cache = tiny_model.cache_folder(config.cache_dir, os.environ)
    return str(tiny_model.folder(cache) if dry else tiny_model.ensure(cache, host.python))


def _engine_ports(config: EngineConfig, host: Host, gateway_port: int, *, dry: bool) -> Sequence[int]:
    count = commands.ports_needed(config, host)
    if not config.base_port:
        return free_ports(config.host, count, avoid=gateway_port)
    ports = range(config.base_port, config.base_port + count)
    if not dry:
        for port in ports:
            refuse_taken(config.host, port)
    return ports


def free_ports(host: str, count: int, avoid: int = 0) -> tuple[int, ...]:
    """Ports of PORTS, other than `avoid`, that can be bound on `host` now. Raises EnvironmentFault when too few are left, or
    the host is none of this machine."""
    found: list[int] = []
    candidates = random.sample(PORTS, len(PORTS))
    with ExitStack() as stack:  # all stay bound until all are found, so no port is found twice
        for port in candidates:
            if len(found) == count:
                break
            if port == avoid:
                continue
            probe = stack.enter_context(socket_for(host))
            try:
                probe.bind((host, port))
                found.append(port)
            except OSError as error:
                if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                    raise unbindable(host, port, error) from error  # so it is with every port
    if len(found) < count:
        raise EnvironmentFault(
            f"{host}: only {len(found)} of {count} free ports in {PORTS.start}-{PORTS.stop - 1}."
        )
    return tuple(found)


def refuse_taken(host: str, port: int) -> None:
    """Raises EnvironmentFault when somebody listens there already, or the address is not ours."""
    with socket_for(host) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as the server will: old connections do no harm
        try:
            probe.bind((host, port))
        except OSError as error:
            raise unbindable(host, port, error) from error


def refuse_runs(runs: Path) -> None:
    """Raises UsageFault where a file is in the way of the folder of run folders."""
    try:
        present = next(path for path in (runs.absolute(), *runs.absolute().parents) if path.exists())
        usable = present.is_dir()
    except OSError as error:
        raise UsageFault(f"runs_dir: {runs} cannot be used ({error.strerror}).") from error
    if not usable:
        raise UsageFault(f"runs_dir: {runs} cannot be made, {present} is no folder.")


def new_run_folder(runs: Path, stamp: str) -> Path:
    """RUNS/serve-STAMP, or with -2, -3 behind it; RUNS/latest points at it. Raises EnvironmentFault."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
        folder = _made(runs, stamp)
        for below in ("logs", "journal"):
            (folder / below).mkdir()
        pointer = runs / f".latest-{os.getpid()}"
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(folder.name)
        pointer.replace(runs / "latest")
    except OSError as error:
        raise EnvironmentFault(f"{runs}: no run folder can be made there ({error.strerror}).") from error
    return folder


def hand_back_latest(folder: Path, was_ready: bool) -> None:
    """When a service ends: RUNS/latest goes to the newest other service that still runs.

    Where none does, it stays on this one if that ever was ready, else goes to the newest that was written down.
    """
    latest = folder.parent / "latest"
    if not latest.is_symlink() or latest.resolve() != folder:
        return
    others = sorted(
        (path for path in folder.parent.glob("serve-*") if path != folder), key=_started_at, reverse=True
    )
    running = [path for path in others if _runs(path)]
    written = [path for path in others if _started_at(path) > 0]
    if running or (written and not was_ready):
        pointer = folder.parent / f".latest-{os.getpid()}"
        with suppress(OSError):
            pointer.unlink(missing_ok=True)
            pointer.symlink_to((running or written)[0].name)
            pointer.replace(latest)


def _started_at(folder: Path) -> float:
    try:
        return Service.read(folder).started_at
    except UsageFault:
        return 0.0


def _runs(folder: Path) -> bool:
    try:
        pid = Service.read(folder).launcher_pid
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (UsageFault, OSError):
        return False
    return pid != os.getpid() and b"serve" in command.split(b"\0")


def _made(runs: Path, stamp: str) -> Path:
    number = 1
    while True:
        folder = runs / (f"serve-{stamp}" if number == 1 else f"serve-{stamp}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder.resolve()
