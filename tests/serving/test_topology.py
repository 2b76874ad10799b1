"""What `toolkit serve` finds out about this machine."""

import errno
import socket
from pathlib import Path

import pytest

from serving import topology
from serving.binding import unbindable
from serving.config import EngineConfig, ServeConfig
from serving.service import Service
from serving.topology import (
    PORTS,
    engine_python,
    free_ports,
    gpu_present,
    new_run_folder,
    on_gpus,
    plan,
    reached_at,
    refuse_taken,
)
from toolkit.core.config import validate
from toolkit.core.errors import EnvironmentFault, UsageFault


def executable(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("body", "present"),
    [
        ("echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'", True),
        ("echo No devices were found", False),
        ("exit 9", False),
    ],
)
def test_a_gpu_is_what_nvidia_smi_lists(
    body: str, present: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver without a device is no GPU."""
    executable(tmp_path / "nvidia-smi", body)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert gpu_present() is present
    assert on_gpus(EngineConfig(), dry=False) is present


def test_no_nvidia_smi_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to ask."""
    monkeypatch.setenv("PATH", str(tmp_path))

    assert not gpu_present()
    assert on_gpus(EngineConfig(kind="gpu"), dry=True)
    with pytest.raises(EnvironmentFault):
        on_gpus(EngineConfig(kind="gpu"), dry=False)


def test_the_engines_interpreter_may_be_named(tmp_path: Path) -> None:
    """By path, or by a name on PATH."""
    python = executable(tmp_path / "python", "")

    assert engine_python(EngineConfig(python=str(python)), dry=False) == str(python)


def test_without_an_engine_environment_the_way_to_get_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make install`; a dry run needs none."""
    monkeypatch.setattr("serving.topology.ROOT", tmp_path)

    with pytest.raises(EnvironmentFault, match="make install"):
        engine_python(EngineConfig(), dry=False)
    assert engine_python(EngineConfig(), dry=True) == ".venv-engine/bin/python"


def test_free_ports_are_bindable_distinct_and_nobody_elses() -> None:
    """Outside the range of outgoing connections: an engine must find its port free when it comes back."""
    ports = free_ports("127.0.0.1", 5)

    assert len(set(ports)) == 5
    assert set(ports) <= set(PORTS)
    assert max(PORTS) < 22_000
    for port in ports:
        refuse_taken("127.0.0.1", port)


def test_a_port_is_not_given_twice() -> None:
    """The gateway's own is avoided."""
    wanted = set(free_ports("127.0.0.1", 50))
    avoided = next(iter(wanted))

    assert avoided not in free_ports("127.0.0.1", len(PORTS) // 2, avoid=avoided)


def test_a_taken_port_is_refused() -> None:
    """Whoever listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        with pytest.raises(EnvironmentFault, match="cannot be bound"):
            refuse_taken("127.0.0.1", taken.getsockname()[1])


def test_a_host_that_is_none_of_this_machine_is_told_as_that_not_as_a_taken_port() -> None:
    """Also where any port would do: no 4,500 tries."""
    for tried in (lambda: refuse_taken("192.0.2.1", 8000), lambda: free_ports("192.0.2.1", 1)):
        with pytest.raises(EnvironmentFault, match=r"192\.0\.2\.1 is no address of this machine"):
            tried()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "'nohost' cannot be resolved"),
        (OSError(errno.EACCES, "Permission denied"), "below 1024"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "--port"),
    ],
)
def test_what_cannot_be_bound_says_why_and_what_to_do(error: OSError, says: str) -> None:
    """One sentence each."""
    assert says in unbindable("nohost", 80, error).message


@pytest.mark.parametrize(
    ("host", "seen"), [("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("10.0.0.1", "10.0.0.1")]
)
def test_an_address_is_written_as_urls_want_it(host: str, seen: str) -> None:
    """Every address is reached at the loopback; IPv6 stands in brackets."""
    assert reached_at(host) == seen


def test_run_folders_never_collide_and_the_last_is_latest(tmp_path: Path) -> None:
    """Two starts within one second get two folders."""
    first = new_run_folder(tmp_path / "runs", "20260101-000000")
    second = new_run_folder(tmp_path / "runs", "20260101-000000")

    assert (first.name, second.name) == ("serve-20260101-000000", "serve-20260101-000000-2")
    assert (tmp_path / "runs" / "latest").resolve() == second
    assert sorted(path.name for path in second.iterdir()) == ["journal", "logs"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["latest", first.name, second.name]


def test_a_runs_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """Exit code 3, with the path."""
    (tmp_path / "runs").write_text("a file")

    with pytest.raises(EnvironmentFault, match="runs: no run folder"):
        new_run_folder(tmp_path / "runs", "x")


def served(**engine: object) -> ServeConfig:
    return validate(ServeConfig, {"gateway": {"port": 0}, "engine": engine}, "test")


def test_attached_engines_are_fronted_and_not_started() -> None:
    """No interpreter and no model folder are needed."""
    planned = plan(
        served(attach_prefill=["http://p:1"], attach_decode=["http://d:1", "http://d:2"], python="/none")
    )

    assert planned.launches == ()
    assert [engine.name for engine in planned.engines] == ["prefill-0", "decode-0", "decode-1"]
    assert planned.model_name == ""
    assert planned.config.gateway.port in PORTS
    assert planned.gateway_url.endswith(str(planned.config.gateway.port))


def test_a_base_port_is_where_ports_start(tmp_path: Path) -> None:
    """Two for each prefill, then one for each decode."""
    model = tmp_path / "m"
    model.mkdir()
    (model / "config.json").write_text("{}")
    config = validate(ServeConfig, {"model": {"path": str(model)}, "engine": {"base_port": 21000}}, "test")
    planned = plan(config, dry=True)

    assert [engine.url for engine in planned.engines] == ["http://127.0.0.1:21000", "http://127.0.0.1:21002"]
    assert planned.model_name == "m"


def test_gpus_need_a_model() -> None:
    """The tiny one is for machines without a GPU."""
    with pytest.raises(UsageFault, match="--model DIR"):
        plan(served(kind="gpu"), dry=True)


def described(runs: Path, name: str, pid: int, started_at: float) -> Path:
    folder = runs / name
    folder.mkdir(parents=True)
    service = Service(
        config=ServeConfig(),
        engines=(),
        gateway_url="http://127.0.0.1:1",
        model_name="m",
        started_at=started_at,
        launcher_pid=pid,
    )
    service.write(folder)
    return folder


@pytest.mark.parametrize(
    ("other_runs", "was_ready", "points_at"),
    [(True, True, "other"), (False, True, "mine"), (False, False, "other")],
)
def test_latest_goes_back_to_a_service_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_runs: bool, was_ready: bool, points_at: str
) -> None:
    """A second gateway that ended, or a start that failed, does not take the first service's place."""
    described(tmp_path, "serve-other", 1, 1.0)
    mine = described(tmp_path, "serve-mine", 2, 2.0)
    (tmp_path / "latest").symlink_to("serve-mine")
    monkeypatch.setattr(topology, "_runs", lambda _: other_runs)

    topology.hand_back_latest(mine.resolve(), was_ready)

    assert (tmp_path / "latest").resolve().name == f"serve-{points_at}"
