"""The long rest: what README promises, measured on the real pair."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.live.faults import accounted
from tests.live.service import ROOT, Running, free_port, still_alive, wait_for

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1200)]

TOOLKIT = ROOT / ".venv/bin/toolkit"


def bench(running: Running, folder: Path, *options: str) -> dict:
    command = [
        str(TOOLKIT),
        "bench",
        "--profile",
        "smoke",
        "--url",
        running.url,
        "--out",
        str(folder),
        "--json",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_smoke_has_no_failed_request(service, results, tmp_path):
    """README's load on README's service."""
    report = bench(service, tmp_path / "smoke")
    everything = report["total"]

    results.add(
        "`toolkit bench --profile smoke`: offered / completed",
        f"{everything['offered']} / {everything['completed']}",
    )
    results.add(
        "TTFT p50, from the intended arrival",
        f"{everything['ttft_s']['p50']['estimate'] * 1000:.0f} ms",
    )
    assert everything["failed"] == {}
    assert everything["completed"] == everything["offered"] > 40


def test_three_minutes_of_load_leave_the_gateway_as_it_was(service, results, tmp_path):
    """Memory settles, descriptors return, no request is lost between journal and metrics."""
    gateway = service.root_of("gateway")
    bench(service, tmp_path / "warm", "--duration", "30", "--seed", "2")
    time.sleep(5)
    memory, descriptors = gateway.memory_info().rss, gateway.num_fds()
    cached = service.metric("toolkit_image_cache_bytes")
    report = bench(service, tmp_path / "long", "--duration", "180", "--seed", "3")
    wait_for("an idle gateway", service.idle, 20)
    time.sleep(5)
    kept = (
        service.metric("toolkit_image_cache_bytes") - cached
    ) / 1e6  # as configured: access.cache_mb bounds it
    growth = (gateway.memory_info().rss - memory) / 1e6 - kept

    results.add(
        "180 s at 1/s: offered / completed", f"{report['total']['offered']} / {report['total']['completed']}"
    )
    results.add(
        "gateway RSS after it",
        f"{gateway.memory_info().rss / 1e6:.0f} MB ({growth:+.0f} MB beside {kept:.0f} MB of cached images)",
    )
    assert report["total"]["failed"] == {}
    assert growth < 40
    assert gateway.num_fds() <= descriptors + 2


def test_2000_requests_with_random_faults_end_in_2000_outcomes_and_leave_nothing(service, results):
    """As the 150 of `make test`, for longer."""
    began = time.monotonic()
    outcomes = accounted(service, 2000, at_once=16, seed=2)

    results.add(
        f"2,000 requests with hang-ups, nonsense and short budgets, {time.monotonic() - began:.0f} s",
        ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()) + "; nothing was left",
    )
    assert outcomes["completed"] > 600


def test_a_second_gateway_fronts_the_same_engines(service, tmp_path):
    """--attach: engines it did not start; stopping it leaves them alone."""
    prefill, decode = service.service.prefills[0], service.service.decodes[0]
    port = free_port()
    command = [
        str(TOOLKIT), "serve", "--port", str(port), "--set", f"runs_dir={tmp_path / 'runs'}",
        "--attach-prefill", f"{prefill.url}?bootstrap_port={prefill.bootstrap_port}", "--attach-decode", decode.url,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        import httpx

        url = f"http://127.0.0.1:{port}"
        wait_for("the second gateway", lambda: httpx.get(f"{url}/readyz", timeout=5).status_code == 200, 60)
        body = {
            "model": service.service.model_name,
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 4,
        }
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(15)

    assert answer.status_code == 200, answer.text
    assert service.chat(max_tokens=4).status_code == 200


def test_the_wheel_works_from_another_folder(tmp_path):
    """What is packaged is what is needed: help, a dry run with its shims, the schema."""
    python = tmp_path / "venv/bin/python"
    run = {"check": True, "capture_output": True, "text": True, "cwd": tmp_path}
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)], **run
    )
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], **run)
    subprocess.run(
        [str(python), "-m", "pip", "install", "-q", "-r", str(ROOT / "requirements/toolkit.txt"), str(wheel)],
        **run,
    )
    shown = subprocess.run([str(tmp_path / "venv/bin/toolkit"), "serve", "--dry-run"], **run).stdout
    launcher = next(word for word in shown.split() if word.startswith("PYTHONPATH=")).partition("=")[2]

    assert "prefill-0" in shown
    assert (Path(launcher) / "cpu_engine.py").is_file()
    assert str(tmp_path) in launcher
    assert (tmp_path / "venv/lib").exists() and not (tmp_path / "toolkit").exists()


def test_kill_9_of_the_launcher_leaves_nothing(service, results):
    """Three process trees, no orphan, no port, no shared memory of images."""
    everyone = service.family()
    (launcher,) = [
        p for p in [psutil.Process(service.process.pid), *everyone] if p.pid == service.service.launcher_pid
    ]
    began = time.monotonic()
    os.kill(launcher.pid, signal.SIGKILL)

    wait_for("everything to end", lambda: not still_alive(everyone), 10)
    results.add("kill -9 of the launcher, to the last process's end", f"{time.monotonic() - began:.1f} s")
    assert not list(Path("/dev/shm").glob("sgl_shm_mm_*"))
