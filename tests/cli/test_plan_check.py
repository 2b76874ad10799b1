"""The check that `toolkit plan cpu` can fail: what it predicts, beside what a gateway under that load really burns."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from serving.plan_process import spent
from serving.supervisor import processes
from toolkit.core.plan import Plan

pytestmark = [pytest.mark.proof, pytest.mark.timeout(290)]

TOOLKIT = str(Path(sys.executable).with_name("toolkit"))
WITHIN = 1 / 0.7
"""Burnt over predicted, and its inverse: what the default headroom of 0.3 forgives. Seen: 0.92 to 0.98 predicted over
burnt, on a machine whose caches are other people's from one half-minute to the next."""
RATE, SECONDS = 4.0, 12.0
PROFILE = f"""
name = "planned"
rate = {RATE}
duration_s = {SECONDS}

[classes.text_only]
weight = 0.4
slo_class = "batch"
text_tokens = {{ min = 16, max = 160 }}
max_tokens = {{ min = 8, max = 32 }}

[classes.image_short]
weight = 0.4
slo_class = "batch"
images = {{ min = 1, max = 1 }}
sizes = [[640, 480], [1280, 720]]

[classes.high_res]
weight = 0.2
slo_class = "batch"
images = {{ min = 1, max = 1 }}
sizes = [[3000, 2000]]
"""


@contextmanager
def stand_in_service(folder: Path) -> Iterator[tuple[str, int]]:
    """`toolkit serve` on simulated engines: its URL, and the gateway's process."""
    command = [TOOLKIT, "serve", "--json", "--port", "0", "--set", "engine.kind=simulated"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            ready = next(one for one in map(json.loads, process.stdout) if one["event"] == "service_ready")
            run_dir = folder / "runs/latest"
            pid = next(one["pid"] for one in processes(run_dir) if one["name"] == "gateway")
            yield (
                ready.get("gateway") or json.loads((run_dir / "service.json").read_text())["gateway_url"],
                pid,
            )
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def run(folder: Path, *words: str) -> Any:
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run([TOOLKIT, *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_planned_is_what_a_gateway_burns(tmp_path: Path) -> None:
    """Predicted CPU seconds are within a factor of those of a real gateway under the same profile, another seed's draws."""
    (tmp_path / "planned.toml").write_text(PROFILE)
    words = ("--qps", f"{RATE}", "--measure", "--image-seconds", "6", "--json")
    planned = run(tmp_path, "plan", "cpu", "-p", "planned.toml", *words)

    with stand_in_service(tmp_path) as (url, pid):
        load = ("bench", "-p", "planned.toml", "--url", url, "--json")
        run(tmp_path, *load, "--seed", "8", "--duration", "4", "--out", "warm")  # starts what is started once
        began, before = time.monotonic(), spent(pid)
        run(tmp_path, *load, "--seed", "7", "--out", "load")
        burnt, took = spent(pid).since(before).whole_s, time.monotonic() - began

    asked = Plan.from_json((tmp_path / "load/plan.json").read_bytes())
    predicted = planned["idle_cores"] * took + predicted_s(planned, asked)
    print(f"predicted {predicted:.2f} CPU s, burnt {burnt:.2f}: {predicted / burnt:.2f}")
    assert 1 / WITHIN < predicted / burnt < WITHIN


def predicted_s(planned: dict[str, Any], asked: Plan) -> float:
    """CPU seconds by the plan's own costs, of the requests that were really drawn: the plan's shares are a long run's."""
    costs = {need["load"]["name"]: need["load"] for need in planned["classes"]}
    requests = Counter(request.workload_class.value for request in asked.requests)
    images = Counter(request.workload_class.value for request in asked.requests for _ in request.images)
    whole = sum(count * costs[name]["request"]["mean_s"] for name, count in requests.items())
    return whole + sum(count * costs[name]["image"]["mean_s"] for name, count in images.items())
