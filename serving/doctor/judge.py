"""Facts in, findings out: what is well, what to watch, what stops the toolkit from working. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from serving.doctor.facts import Cpu, Decoder, Engine, Facts, Memory, Port

Level = Literal["ok", "warning", "problem"]
GB = 1e9

SGLANG = "0.5.23"
ENGINE_PACKAGES = ("sglang", "torch", "transformers")
# A pair and a second decode took 4.6 GB (measured on the CPU engine), a pair 3.4 GB.
MEMORY_WANTED, MEMORY_NEEDED = 6 * GB, 3.5 * GB
SHM = "/dev/shm"  # noqa: S108 (named, not written)
SHM_WANTED = 256e6  # images' features travel from process to process in it; a container has 64 MB unless told
DISK_WANTED, DISK_NEEDED = 5 * GB, 0.5 * GB  # bench keeps up to 5 GB of run folders
FILES_WANTED, FILES_NEEDED = 4096, 1024  # a request is up to four sockets: its client, two legs, an image
ENGINE_PORTS_NEEDED = 3  # prefill (HTTP, bootstrap) and decode
LATE_S = 0.005  # as the load generator's limit on its own slip
FAILURE_SWITCH = "SGLANG_TEST_DISAGG_FAILURE_PROB"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. do: what to do about it; empty when it is ok."""

    topic: str
    level: Level
    text: str
    do: str = ""


def findings(facts: Facts) -> tuple[Finding, ...]:
    """In the order of the page; one or more per topic."""
    return tuple(_every(facts))


def worst(found: tuple[Finding, ...]) -> Level:
    """The gravest level among them."""
    levels: tuple[Level, ...] = ("problem", "warning", "ok")
    return next((level for level in levels if any(one.level == level for one in found)), "ok")


def _every(facts: Facts) -> Iterator[Finding]:
    yield Finding("toolkit", "ok", f"mm-serving-toolkit {facts.toolkit}, Python {facts.python}")
    yield _engine(facts.engine)
    if facts.cpu:
        yield from _cpu(facts.cpu)
    if facts.memory:
        yield from _memory(facts.memory, served(facts))
    yield Finding("GPUs", "ok", "; ".join(facts.gpus) or "none: the CPU engine serves a tiny model")
    if facts.disk:
        yield _disk(facts.disk.path, facts.disk.free)
    if facts.open_files:
        yield _open_files(*facts.open_files)
    yield from (_port(port, facts) for port in facts.ports)
    if facts.engine_ports_free is not None:
        yield _engine_ports(facts.engine_ports_free)
    yield _decoder(facts.decoder)
    yield _loop(facts.uvloop)
    yield from _clock(facts)
    yield _generator(facts)
    yield from _transfer(facts)
    yield _service(facts)
    yield from _environment(facts)


def _engine(engine: Engine | None) -> Finding:
    topic = "engine"
    if engine is None:
        return Finding(topic, "problem", "no engine environment (.venv-engine)", "make install")
    names = [*ENGINE_PACKAGES, *(name for name in engine.packages if name.startswith("mooncake"))]
    text = ", ".join(f"{name} {engine.packages[name]}" for name in names if name in engine.packages)
    missing = [name for name in ENGINE_PACKAGES if name not in engine.packages]
    if not any(name.startswith("mooncake") for name in engine.packages):
        missing.append("mooncake-transfer-engine")
    if missing:
        return Finding(
            topic, "problem", f"{text or engine.python}; not there: {', '.join(missing)}", "make install"
        )
    if not engine.finished:
        return Finding(topic, "problem", f"{text}; its installation did not end", "make install")
    if engine.packages["sglang"] != SGLANG:
        return Finding(topic, "warning", f"{text}; tested with sglang {SGLANG}", "make install")
    return Finding(topic, "ok", text)


def _cpu(cpu: Cpu) -> Iterator[Finding]:
    quota = "" if cpu.quota is None else f", {cpu.quota:g} by the cgroup's quota"
    text = f"{cpu.model or 'unknown'}: {cpu.usable} of {cpu.cores} cores usable{quota}"
    if cpu.room < 2:
        yield Finding("CPU", "warning", text, "give it 2 cores: two engines and the gateway share one here")
    else:
        yield Finding("CPU", "ok", text)
    load = f"load {cpu.load:.1f} on {cpu.room:g} cores"
    if cpu.load > cpu.room:
        yield Finding("load", "warning", load, "wait until it is idle before you believe a latency")
    else:
        yield Finding("load", "ok", load)
    if cpu.governor == "powersave":
        yield Finding(
            "governor", "warning", "powersave", "cpupower frequency-set -g performance, for steady figures"
        )
    elif cpu.governor:
        yield Finding("governor", "ok", cpu.governor)


def served(facts: Facts) -> bool:
    """Whether a service runs or starts here: what it takes is in use already."""
    return facts.service is not None and facts.service.state != "ended"


def _memory(memory: Memory, served: bool) -> Iterator[Finding]:
    limit = "" if memory.limit is None else f", limit of the cgroup {_gb(memory.limit)}"
    text = f"{_gb(memory.room)} to be had of {_gb(memory.total)}{limit}"
    if served and memory.room < MEMORY_NEEDED:
        yield Finding(
            "memory",
            "warning",
            f"{text}, beside the running service",
            "leave it some for its load, or stop it",
        )
    elif memory.room < MEMORY_NEEDED:
        yield Finding("memory", "problem", text, f"free {_gb(MEMORY_NEEDED)} for a pair on the CPU engine")
    elif memory.room < MEMORY_WANTED:
        yield Finding("memory", "warning", text, f"{_gb(MEMORY_WANTED)} leave room for a pair and its load")
    else:
        yield Finding("memory", "ok", text)
    if memory.shm_total:
        shared = f"{_gb(memory.shm_free)} free of {_gb(memory.shm_total)}"
        if memory.shm_free < SHM_WANTED:
            yield Finding(SHM, "warning", shared, "start the container with --shm-size=1g, or clear it")
        else:
            yield Finding(SHM, "ok", shared)


def _disk(path: str, free: int) -> Finding:
    text = f"{_gb(free)} free for {path}"
    if free < DISK_NEEDED:
        return Finding("disk", "problem", text, "free some: logs and journals are lost on a full disk")
    if free < DISK_WANTED:
        return Finding("disk", "warning", text, "delete old run folders, or bench with a smaller --keep-gb")
    return Finding("disk", "ok", text)


def _open_files(soft: int, hard: int) -> Finding:
    text = f"{soft} (at most {hard})"
    advice = (
        f"ulimit -n {min(65536, hard)}" if hard > soft else "raise the hard limit on open files (limits.conf)"
    )
    if soft < FILES_NEEDED:
        return Finding("open files", "problem", text, advice)
    if soft < FILES_WANTED:
        return Finding("open files", "warning", text, advice)
    return Finding("open files", "ok", text)


def _port(port: Port, facts: Facts) -> Finding:
    topic = f"port {port.number}"
    if not port.holder:
        return Finding(topic, "ok", f"free ({port.purpose})")
    if served(facts) and facts.service is not None and facts.service.url.endswith(f":{port.number}"):
        return Finding(topic, "ok", f"the running service ({port.holder})")
    return Finding(
        topic, "warning", f"held by {port.holder} ({port.purpose})", "stop that, or choose another port"
    )


def _engine_ports(free: int) -> Finding:
    if free < ENGINE_PORTS_NEEDED:
        return Finding("engine ports", "problem", f"{free} free of 17500-21999", "end who holds them")
    return Finding("engine ports", "ok", f"{free} free of 17500-21999")


def _decoder(decoder: Decoder | None) -> Finding:
    topic = "image decoder"
    if decoder is None:
        return Finding(topic, "problem", "Pillow cannot be loaded", "make install")
    formats = ", ".join(decoder.formats)
    scaled = f"JPEG decoded at a DCT scale of 1/2, 1/4 or 1/8 while {decoder.margin} x the target is kept"
    if not decoder.libjpeg_turbo:
        text = f"Pillow {decoder.pillow} on a libjpeg that is not turbo; {formats}"
        return Finding(topic, "warning", text, "install Pillow's own wheel: it decodes several times faster")
    means = f"fast: {', '.join(decoder.fast)}" if decoder.fast else "portable: Pillow alone"
    text = f"{means}; Pillow {decoder.pillow}, libjpeg-turbo {decoder.libjpeg_turbo}; {scaled}; {formats}"
    if decoder.lacks:
        return Finding(topic, "warning", text, f"for less CPU and memory a photo: {decoder.lacks}")
    return Finding(topic, "ok", text)


def _loop(uvloop: str) -> Finding:
    if uvloop:
        return Finding("event loop", "ok", f"uvloop {uvloop}")
    return Finding("event loop", "problem", "uvloop cannot be loaded", "make install")


def _clock(facts: Facts) -> Iterator[Finding]:
    clock = facts.clock
    if clock is None:
        return
    timers = "timerfd" if clock.timerfd else "no timerfd"
    text = f"monotonic to {clock.resolution_s * 1e9:.0f} ns, a sleep of 1 ms ends {clock.late_s * 1e3:.2f} ms late, {timers}"
    if clock.late_s > LATE_S:
        yield Finding(
            "clock", "warning", text, "the machine is busy or its timers are coarse: do not measure now"
        )
    else:
        yield Finding("clock", "ok", text)


def _generator(facts: Facts) -> Finding:
    topic, check = "load generator", "toolkit bench --self-check"
    if facts.generator is None:
        return Finding(topic, "warning", "its own error was never measured here with these versions", check)
    if not facts.generator.honest:
        return Finding(
            topic, "warning", f"not honest here: {facts.generator.text}", f"on an idle machine: {check}"
        )
    return Finding(topic, "ok", facts.generator.text)


def _transfer(facts: Facts) -> Iterator[Finding]:
    devices = ", ".join(facts.rdma)
    if devices and "MC_FORCE_TCP" in facts.environment:
        yield Finding("RDMA", "warning", f"{devices}, but MC_FORCE_TCP is set", "unset MC_FORCE_TCP")
    else:
        yield Finding("RDMA", "ok", devices or "no device: KV travels over TCP")
    told = facts.transfer
    if told is None:
        return
    if told.late:
        yield Finding("transfer", "warning", told.error, "toolkit bench transfer, on an idle machine")
    elif told.error:
        yield Finding(
            "transfer", "problem", told.error, "toolkit bench transfer --out DIR, and read its logs"
        )
    else:
        yield Finding("transfer", "ok", f"Mooncake over {told.protocol}: {told.text}")


def _service(facts: Facts) -> Finding:
    service = facts.service
    if service is None or service.state == "ended":
        return Finding("service", "ok", "none runs from this folder (make serve)")
    where = f"{service.url} ({service.folder})"
    if service.state == "ready":
        return Finding("service", "ok", f"ready at {where}")
    if service.state == "starting":
        waits = f", waiting for {', '.join(service.waiting)}" if service.waiting else ""
        return Finding("service", "warning", f"still starting at {where}{waits}", "wait, and ask again")
    if service.state == "not ready":
        return Finding("service", "warning", f"runs, not ready, at {where}", "wait, or read its logs")
    return Finding(
        "service",
        "problem",
        f"runs, but its gateway is silent at {where}",
        "read its logs; stop and start it",
    )


def _environment(facts: Facts) -> Iterator[Finding]:
    names = facts.environment
    if FAILURE_SWITCH in names:
        text = f"{FAILURE_SWITCH}={names[FAILURE_SWITCH]}: SGLang fails transfers at random"
        yield Finding("environment", "warning", text, f"unset {FAILURE_SWITCH}")
    if "PYTHONPATH" in names:
        text = f"PYTHONPATH={names['PYTHONPATH']}: every process imports from there first"
        yield Finding("environment", "warning", text, "unset PYTHONPATH")
    said = " ".join(f"{name}={value}" for name, value in sorted(names.items()))
    yield Finding("environment", "ok", said or "nothing set that changes behaviour")


def _gb(size: float) -> str:
    return f"{size / GB:.1f} GB" if size >= 0.1 * GB else f"{size / 1e6:.0f} MB"
