"""The command with locust around it: real locust, real processes, a real server that keeps stamps of its own."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from dataclasses import asdict

import psutil
import pytest
import typer

from toolkit.cli.bench_locust import follow
from toolkit.core.plan import Plan
from toolkit.core.slo import quantile
from workloads.fixed_server import Schedule, read_stamps
from workloads.locust.split import LOST
from workloads.record import LoadSample
from workloads.selfcheck import FixedServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PATIENCE_S = 90.0
PROFILE = """
name = "two-classes"
duration_s = 3.0
rate = 40.0
drain_s = 5.0
[classes.text_only]
weight = 1
slo_class = "realtime"
[classes.image_short]
weight = 1
images = { min = 1, max = 1 }
sizes = [[64, 48]]
"""


def toolkit(*args):
    """`toolkit bench` in a process; SIGINT reaches it as from a terminal."""
    return subprocess.Popen(
        [sys.executable, "-c", "from toolkit.cli import main; main()", "bench", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def heard(process, word):
    """The first line on stderr with that word in it."""
    for line in process.stderr:
        if word in line:
            return line.strip()
    raise AssertionError(f"{word!r} was never said; exit code {process.wait()}")


def until(true, what):
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def below(process, module):
    """The processes under it that run this module."""
    return [p for p in psutil.Process(process.pid).children(recursive=True) if module in p.cmdline()]


def samples_in(folder):
    lines = (folder / "samples.jsonl").read_text().splitlines()
    return [LoadSample.from_dict(json.loads(line)) for line in lines]


@pytest.fixture
def server():
    with FixedServer(Schedule(ttft_s=0.05, itl_s=0.01, events=12)) as server:
        yield server


@pytest.fixture
def started():
    """What a test starts ends with it."""
    processes = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(PROFILE, encoding="utf-8")
    return path


@pytest.fixture
def two_workers(server, profile, tmp_path, started):
    """Starts a headless master and two workers; (master, workers, folder)."""

    def start(*args):
        folder = tmp_path / "run"
        options = ("--master", "--master-port", 0, "--expect-workers", 2, "--profile", profile)
        master = toolkit(*options, "--url", server.url, "--out", folder, *args)
        started.append(master)
        address = heard(master, "master: ").split()[-1]
        workers = [toolkit("--worker", address) for _ in range(2)]
        started.extend(workers)
        return master, workers, folder

    return start


@pytest.mark.proof
def test_a_worker_without_a_master_says_so_soon(started):
    """locust would look for five minutes. Exit code 3, and what to start."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        worker = toolkit("--worker", f"127.0.0.1:{nobody.getsockname()[1]}")
        started.append(worker)
        said = worker.communicate(timeout=60)[1]

    assert worker.returncode == 3
    assert "toolkit bench --master" in said


def test_two_workers_are_one_run(two_workers, server):
    """Every planned request is sent once, no sample is lost, and the report's percentiles are the pooled samples'."""
    master, workers, folder = two_workers()

    out, err = master.communicate(timeout=PATIENCE_S)
    last = [worker.communicate(timeout=PATIENCE_S)[1].splitlines()[-1] for worker in workers]
    codes = [process.returncode for process in (master, *workers)]

    assert codes == [0, 0, 0], err
    samples = samples_in(folder)
    assert all("requests done in 1 run(s), 0 failed; the master quit" in line for line in last), last
    assert sum(int(line.split("worker ended: ")[1].split()[0]) for line in last) == len(samples)
    plan = Plan.from_json((folder / "plan.json").read_bytes())
    report = json.loads((folder / "report.json").read_text())
    with urllib.request.urlopen(f"{server.url}/stamps") as answer:
        stamps = {stamp.answer for stamp in read_stamps(answer.read())}
    assert sorted(sample.index for sample in samples) == [request.index for request in plan.requests]
    assert {s.request_id for s in samples} == stamps  # the server's own count: nothing lost, nothing twice
    assert all(sample.completed for sample in samples)
    for name, group in {"all": report["total"], **report["classes"]}.items():
        mine = [s for s in samples if name in ("all", s.workload_class)]
        pooled = {
            "ttft_s": [s.ttft_scheduled_s for s in mine],
            "ttft_sent_s": [s.ttft_s for s in mine],
            "itl_s": [gap for s in mine for gap in s.itl_s],
        }
        assert group["offered"] == len(mine) > 0
        for key, values in pooled.items():
            for percent in (50, 95, 99):
                exact = quantile(values, percent / 100)
                assert {**group[key][f"p{percent}"]} == {**asdict(exact), "firm": exact.firm}
    assert "two-classes" in (folder / "report.md").read_text()
    assert "text_only" in out


def test_a_worker_that_is_killed_takes_its_core_along(two_workers):
    """kill -9: its request core is gone at once, and what it had not told counts as lost, in the report too."""
    master, workers, folder = two_workers("--duration", 8)
    until(lambda: (folder / "samples.jsonl").exists() and samples_in(folder), "no sample came")
    (shell,), (core,) = (
        below(workers[0], "workloads.locust.shell"),
        below(workers[0], "workloads.locust.core"),
    )

    shell.kill()
    psutil.wait_procs([core], timeout=5)
    gone = not core.is_running()
    master.communicate(timeout=PATIENCE_S)

    samples = samples_in(folder)
    plan = Plan.from_json((folder / "plan.json").read_bytes())
    missing = [sample for sample in samples if sample.code == LOST]
    report = json.loads((folder / "report.json").read_text())
    assert gone
    assert master.returncode == 1
    assert sorted(sample.index for sample in samples) == [request.index for request in plan.requests]
    assert len({sample.index % 2 for sample in missing}) == 1
    assert report["total"]["offered"] == len(plan.requests)
    assert report["total"]["failed"][LOST] == len(missing) > 0


def test_ctrl_c_at_the_master_ends_all_in_order(two_workers):
    """What was recorded is in the report; the workers and their cores are gone; exit 130."""
    master, workers, folder = two_workers("--duration", 60)
    until(lambda: (folder / "samples.jsonl").exists() and len(samples_in(folder)) > 20, "no sample came")
    cores = [core for worker in workers for core in below(worker, "workloads.locust.core")]

    master.send_signal(signal.SIGINT)
    _, err = master.communicate(timeout=PATIENCE_S)

    assert master.returncode == 130, err
    assert [worker.wait(PATIENCE_S) for worker in workers] == [0, 0]
    assert len(cores) == 2
    assert not psutil.wait_procs(cores, timeout=5)[1]
    report = json.loads((folder / "report.json").read_text())
    assert report["total"]["offered"] == len(samples_in(folder)) > 20
    assert LOST not in report["total"]["failed"]


def test_the_web_ui_starts_and_stops_our_load(server, profile, tmp_path, started):
    """Start there begins a run and Stop ends it; classes and their TTFT are in locust's table; again is a new folder."""
    folder = tmp_path / "run"
    process = toolkit(
        "--web", "--web-port", 0, "--profile", profile, "--duration", 60, "--url", server.url, "--out", folder
    )
    started.append(process)
    url = heard(process, "web UI: ").split()[2]

    def get(path, data=None):
        body = None if data is None else urllib.parse.urlencode(data).encode()
        with urllib.request.urlopen(f"{url}{path}", body, timeout=30) as answer:
            return answer.read().decode()

    def rows():
        stats = json.loads(get("/stats/requests"))
        return {(row["method"], row["name"]): row["num_requests"] for row in stats["stats"]}

    wanted = {(kind, name) for kind in ("CHAT", "TTFT") for name in ("text_only", "image_short")}
    page = get("/")
    assert json.loads(get("/swarm", {"user_count": 1, "spawn_rate": 1, "host": server.url}))["success"]
    until(lambda: wanted <= rows().keys(), "the classes did not appear")
    until(lambda: json.loads(get("/stats/requests"))["user_count"] == 40, "no users as the rate asks")
    (core,) = below(process, "workloads.locust.core")
    get("/stop", {})
    until((folder / "report.json").exists, "no report of the first run")
    get("/swarm", {"user_count": 1, "spawn_rate": 1, "host": server.url})
    second = folder.with_name("run-2")
    until(lambda: (second / "samples.jsonl").exists() and samples_in(second), "the second run did not begin")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)

    assert "<title>Locust" in page
    psutil.wait_procs([core], timeout=5)
    assert not core.is_running()
    assert url.startswith("http://127.0.0.1:")
    assert process.returncode == 130  # a run was under way
    assert json.loads((second / "report.json").read_text())["total"]["offered"] == len(samples_in(second))
    first = json.loads((folder / "report.json").read_text())
    assert first["total"]["offered"] == len(samples_in(folder))


def test_a_port_that_is_taken_is_told(server, profile, started):
    """Exit 3 and the address, not a traceback."""
    port = urllib.parse.urlsplit(server.url).port

    process = toolkit("--web", "--web-port", port, "--profile", profile, "--url", server.url)
    started.append(process)
    _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 3
    assert f"127.0.0.1:{port}" in err.splitlines()[-1]


def test_the_shape_drives_locust_itself(tmp_path):
    """locust's own runner takes the users of a surge from PlanShape, step by step, and stops at its end."""
    code = """
from workloads.locust import PlanShape
import gevent
from locust import User, task
from locust.env import Environment
from workloads.shape import Stretch

class Idle(User):
    @task
    def wait(self):
        gevent.sleep(60)

shape = PlanShape([Stretch("baseline", 0, 2, 8.0), Stretch("surge", 2, 4, 20.0), Stretch("recovery", 4, 6, 8.0)])
environment = Environment(user_classes=[Idle], shape_class=shape)
runner = environment.create_local_runner()
seen = []
def watch():
    while True:
        if not seen or seen[-1] != runner.user_count:
            seen.append(runner.user_count)
        gevent.sleep(0.02)
gevent.spawn(watch)
runner.start_shape()
runner.shape_greenlet.join()
print([n for n in seen if n in (8, 20)], runner.state)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split("\n")[0] == "[8, 20, 8] stopped", done.stderr


def test_ctrl_c_while_requests_are_prepared_is_quick(server, tmp_path, started):
    """No request goes out, nothing is left running, and the folder may be used again."""
    folder = tmp_path / "run"
    options = ("--profile", "smoke", "--rate", 50, "--duration", 120, "--url", server.url, "--out", folder)
    process = toolkit("--web", "--web-port", 0, *options)
    started.append(process)
    url = heard(process, "web UI: ").split()[2]
    with urllib.request.urlopen(f"{url}/swarm", urllib.parse.urlencode({"host": server.url}).encode()):
        until(lambda: below(process, "workloads.locust.core"), "no core was started")
    (core,) = below(process, "workloads.locust.core")

    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)

    assert time.monotonic() - began < 10
    assert process.returncode == 0
    assert "ended before it began" in err
    psutil.wait_procs([core], timeout=5)
    assert not core.is_running()
    assert not (folder / "samples.jsonl").exists()


def test_clients_come_back_with_locust_too(chat_server, scripts, tmp_path, started):
    """A core is given the profile's policy: who was told to come back does, and is no offer more."""
    profile, folder = tmp_path / "back.toml", tmp_path / "run"
    text = PROFILE.replace("duration_s = 3.0", "duration_s = 2.0").replace("rate = 40.0", "rate = 5.0")
    profile.write_text(text + "[returning]\ntries = 1\njitter_s = 0.1\n", encoding="utf-8")
    refusal = scripts.error(429, "queue_full", (("retry-after", "0"),))
    chat_server.script = lambda body: refusal if len(chat_server.bodies) == 1 else scripts()
    master = toolkit(
        "--master", "--master-port", 0, "--profile", profile, "--url", chat_server.url, "--out", folder
    )
    started.append(master)
    started.append(toolkit("--worker", heard(master, "master: ").split()[-1]))

    master.communicate(timeout=PATIENCE_S)

    samples = samples_in(folder)
    report = json.loads((folder / "report.json").read_text())
    again = [sample for sample in samples if not sample.first]
    assert master.returncode == 1
    assert len(again) == 1 and again[0].completed
    assert report["total"]["offered"] == len(samples) - 1
    assert report["returned"]["came_back"] == 1


@pytest.mark.parametrize(
    ("address", "meant"),
    [(":5611", ("127.0.0.1", 5611)), ("h", ("h", 5557)), ("h:1", ("h", 1))],
)
def test_a_worker_without_a_host_means_this_machine(address, meant, monkeypatch):
    """As the help says: HOST and PORT may each be left out."""
    found = []
    monkeypatch.setattr(
        "workloads.locust.launch.follow", lambda brief, _: found.append((brief.host, brief.port)) or 0
    )

    with pytest.raises(typer.Exit):
        follow(address, leads=False)

    assert found == [meant]
