"""What doctor sees of a machine, and what it makes of it."""

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from serving import service
from serving.config import ServeConfig
from serving.doctor import machine, ports
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
from serving.doctor.judge import findings, worst

PACKAGES = {
    "sglang": "0.5.23",
    "torch": "2.13.0",
    "transformers": "5.19.0",
    "mooncake-transfer-engine": "0.3.13",
}
CPU = Cpu("EPYC", 8, 8, 0.5)
MEMORY = Memory(32 * 10**9, 24 * 10**9, shm_total=10**9, shm_free=10**9)
WELL = Facts(
    toolkit="0.1.0",
    python="3.11.7",
    engine=Engine("python", True, PACKAGES),
    cpu=CPU,
    memory=MEMORY,
    disk=Disk("runs", 10**11),
    open_files=(65536, 65536),
    ports=(Port(8000, "the gateway"),),
    engine_ports_free=4000,
    decoder=Decoder("12.0", "3.1.2", ("JPEG", "PNG"), 3),
    uvloop="0.22",
    clock=Clock(1e-9, 0.0001, True),
    generator=Generator(True, "TTFT p50 0.1 ms"),
    transfer=Transfer("tcp", "1M in 0.7 ms"),
)
SERVICE = Service("runs/latest", "http://127.0.0.1:8000", "ready")


def said(facts, topic):
    """Level and the rest, of the gravest line on that topic."""
    lines = [one for one in findings(facts) if one.topic == topic]
    return max(lines, key=lambda one: ("ok", "warning", "problem").index(one.level))


def test_a_machine_that_is_well_has_no_advice():
    found = findings(WELL)

    assert worst(found) == "ok"
    assert [one.do for one in found if one.do] == []


@pytest.mark.parametrize(
    ("change", "topic", "level", "advice"),
    [
        ({"engine": None}, "engine", "problem", "make install"),
        ({"engine": Engine("p", False, PACKAGES)}, "engine", "problem", "make install"),
        ({"engine": Engine("p", True, {"torch": "2"})}, "engine", "problem", "make install"),
        ({"engine": Engine("p", True, {**PACKAGES, "sglang": "0.6"})}, "engine", "warning", "make install"),
        ({"cpu": replace(CPU, usable=1)}, "CPU", "warning", "2 cores"),
        ({"cpu": replace(CPU, quota=0.5)}, "CPU", "warning", "2 cores"),
        ({"cpu": replace(CPU, load=8.5)}, "load", "warning", "idle"),
        ({"cpu": replace(CPU, quota=2.0, load=2.5)}, "load", "warning", "idle"),
        ({"cpu": replace(CPU, governor="powersave")}, "governor", "warning", "performance"),
        ({"memory": replace(MEMORY, available=5 * 10**9)}, "memory", "warning", "6.0 GB"),
        ({"memory": replace(MEMORY, available=3 * 10**9)}, "memory", "problem", "3.5 GB"),
        ({"memory": replace(MEMORY, limit=4 * 10**9, used=10**9)}, "memory", "problem", "3.5 GB"),
        ({"memory": replace(MEMORY, shm_free=64 * 10**6)}, "/dev/shm", "warning", "--shm-size"),
        ({"disk": Disk("runs", 10**9)}, "disk", "warning", "old run folders"),
        ({"disk": Disk("runs", 10**8)}, "disk", "problem", "free some"),
        ({"open_files": (1024, 65536)}, "open files", "warning", "ulimit -n 65536"),
        ({"open_files": (256, 4096)}, "open files", "problem", "ulimit -n 4096"),
        ({"open_files": (512, 512)}, "open files", "problem", "hard limit"),
        ({"ports": (Port(8000, "the gateway", "nginx (pid 7)"),)}, "port 8000", "warning", "another port"),
        ({"engine_ports_free": 2}, "engine ports", "problem", "end who holds them"),
        ({"decoder": None}, "image decoder", "problem", "make install"),
        ({"decoder": Decoder("12", "", ("JPEG",), 3)}, "image decoder", "warning", "wheel"),
        ({"decoder": Decoder("13", "3", ("JPEG",), 3, lacks="install x")}, "image decoder", "warning", "x"),
        ({"uvloop": ""}, "event loop", "problem", "make install"),
        ({"clock": Clock(1e-9, 0.02, True)}, "clock", "warning", "do not measure"),
        ({"generator": None}, "load generator", "warning", "--self-check"),
        ({"generator": Generator(False, "x")}, "load generator", "warning", "--self-check"),
        ({"transfer": Transfer("tcp", error="gave -1")}, "transfer", "problem", "--out"),
        ({"transfer": Transfer("tcp", error="slow", late=True)}, "transfer", "warning", "idle"),
        ({"rdma": ("mlx5_0",), "environment": {"MC_FORCE_TCP": "1"}}, "RDMA", "warning", "unset"),
        ({"service": replace(SERVICE, state="not ready")}, "service", "warning", "logs"),
        ({"service": replace(SERVICE, state="silent")}, "service", "problem", "logs"),
        ({"service": replace(SERVICE, state="starting", waiting=("decode-0",))}, "service", "warning", "wait"),
        ({"service": SERVICE, "memory": replace(MEMORY, available=10**9)}, "memory", "warning", "its load"),
        ({"environment": {"SGLANG_TEST_DISAGG_FAILURE_PROB": "0.3"}}, "environment", "warning", "unset"),
        ({"environment": {"PYTHONPATH": "/x"}}, "environment", "warning", "unset PYTHONPATH"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_what_to_do(change, topic, level, advice):
    finding = said(replace(WELL, **change), topic)

    assert finding.level == level
    assert advice in finding.do


@pytest.mark.parametrize(
    ("change", "topic", "text"),
    [
        ({"gpus": ()}, "GPUs", "none: the CPU engine"),
        ({"gpus": ("0, H200, 143771 MiB, 580",)}, "GPUs", "0, H200"),
        ({"cpu": replace(CPU, governor="performance")}, "governor", "performance"),
        ({"service": None}, "service", "none runs"),
        ({"service": replace(SERVICE, state="ended")}, "service", "none runs"),
        ({"service": SERVICE}, "service", "ready at http://127.0.0.1:8000"),
        (
            {"service": SERVICE, "ports": (Port(8000, "the gateway", "python (pid 7)"),)},
            "port 8000",
            "the running service",
        ),
        ({"environment": {"MC_LOG_LEVEL": "1"}}, "environment", "MC_LOG_LEVEL=1"),
    ],
)
def test_what_is_as_it_may_be_is_ok(change, topic, text):
    finding = said(replace(WELL, **change), topic)

    assert finding.level == "ok"
    assert text in finding.text


@pytest.mark.parametrize(
    ("rows", "state", "waiting"),
    [
        ([], "starting", ()),
        ([("prefill-0", "ready", 1), ("gateway", "starting", 1)], "starting", ("gateway",)),
        ([("prefill-0", "starting", 2), ("gateway", "ready", 1)], "silent", ()),
        ([("prefill-0", "ready", 1), ("gateway", "ready", 1)], "silent", ()),
    ],
)
def test_a_service_whose_first_start_goes_on_is_starting_not_broken(tmp_path, rows, state, waiting):
    """Its launcher lives, its gateway does not answer yet."""
    folder = tmp_path / "latest"
    folder.mkdir()
    named = [{"name": name, "state": now, "starts": starts} for name, now, starts in rows]
    (folder / "processes.json").write_text(json.dumps(named))
    stays = [sys.executable, "-Sc", "input('up')", "serve"]
    with subprocess.Popen(stays, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.read(2) == b"up"
        service.Service(
            config=ServeConfig(),
            engines=(),
            gateway_url="http://127.0.0.1:1",
            model_name="m",
            started_at=1.0,
            launcher_pid=launcher.pid,
        ).write(folder)
        found = machine.running(tmp_path)
        launcher.communicate(b"\n")

    assert found is not None
    assert (found.state, found.waiting) == (state, waiting)


def test_what_cannot_be_told_makes_no_line_and_no_failure():
    """A kernel that shows nothing: the page is shorter."""
    topics = {one.topic for one in findings(Facts("0.1.0", "3.11"))}

    assert {"toolkit", "engine"} <= topics
    assert topics.isdisjoint({"CPU", "memory", "disk", "clock", "transfer"})


def test_without_an_engine_environment_the_advice_is_make_install(tmp_path):
    """Not an exception: a problem."""
    facts = machine.facts(tmp_path / "runs", {}, root=tmp_path)

    assert facts.engine is None
    assert said(facts, "engine").do == "make install"
    assert worst(findings(facts)) == "problem"


def test_versions_of_an_engine_environment_are_read_from_its_files(tmp_path):
    site = tmp_path / ".venv-engine/lib/python3.11/site-packages"
    for name, of in (("sglang", "0.5.23"), ("mooncake-transfer-engine-cuda13", "1"), ("numpy", "2")):
        folder = site / f"{name.replace('-', '_')}-{of}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {of}\n")
    python = tmp_path / ".venv-engine/bin/python"
    python.parent.mkdir()
    python.touch()

    found = machine.engine(tmp_path)

    assert found == Engine(str(python), False, {"sglang": "0.5.23", "mooncake-transfer-engine-cuda13": "1"})


def test_a_listening_socket_is_found_with_its_holder():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        inode = ports.listening()[port]

        holder = ports.holders([inode])[inode]

    assert holder.endswith(f"(pid {Path('/proc/self').readlink()})")
    assert port not in ports.listening()


def test_only_listening_sockets_count():
    table = "  sl  local_address rem_address   st\n" + "\n".join(
        f"   0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 00:0 0 0 0 {inode}"
        for port, state, inode in ((8000, "0A", 11), (8001, "01", 12))
    )

    assert ports.listeners([table]) == {8000: "11"}


def test_secrets_of_the_environment_are_not_shown():
    shown = machine.settings(
        {
            "TOOLKIT_API_KEY": "s3cret",
            "MC_REDIS_PASSWORD": "s3cret",
            "HTTPS_PROXY": "http://me:s3cret@proxy:3128",
            "MC_FORCE_TCP": "1",
            "HOME": "/root",
        }
    )

    assert shown == {
        "TOOLKIT_API_KEY": "(set)",
        "MC_REDIS_PASSWORD": "(set)",
        "HTTPS_PROXY": "http://(login)@proxy:3128",
        "MC_FORCE_TCP": "1",
    }


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)  # fmt: skip
def test_the_cgroups_quota_is_in_cores(tmp_path, monkeypatch, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "CGROUP", tmp_path)

    assert machine.quota() == cores


def test_this_machine_is_described(tmp_path):
    """Whatever it is: every fact that the kernel always shows is there."""
    facts = machine.facts(tmp_path / "not" / "there", {})

    assert facts.cpu and facts.cpu.usable >= 1
    assert facts.memory and 0 < facts.memory.room <= facts.memory.total
    assert facts.disk and facts.disk.free > 0
    assert facts.decoder and set(facts.decoder.formats) == {"AVIF", "GIF", "JPEG", "PNG", "WEBP"}
    assert facts.clock and facts.uvloop and facts.open_files
    assert facts.service is None
