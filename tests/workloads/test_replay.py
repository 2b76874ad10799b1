"""A recorded run repeats: the same schedule, the same bytes."""

import json
import socket

import pytest
from typer.testing import CliRunner

from toolkit.cli.workload import app
from workloads.bench import run_bench
from workloads.profile import load_profile

pytestmark = pytest.mark.slow

SMALL = """
name = "small"
duration_s = 0.5
rate = 30.0
drain_s = 5.0
arrival = "gamma"
sessions = { gap_s = 0.05, share = 0.5 }
[classes.text_only]
weight = 1
[classes.image_short]
weight = 1
images = { min = 1, max = 1 }
sizes = [[64, 48]]
page_share = 0.3
repeat_share = 0.3
"""


def test_a_replay_sends_the_same_bytes(chat_server, tmp_path):
    """Every body of the second run is one of the first, the plans are equal, and only the run folder is new."""
    profile = tmp_path / "small.toml"
    profile.write_text(SMALL, encoding="utf-8")
    run_bench(load_profile(str(profile)), chat_server.url, tmp_path / "first")
    first = sorted(map(as_text, chat_server.bodies))
    chat_server.bodies.clear()

    arguments = [
        str(tmp_path / "first"),
        "--url",
        chat_server.url,
        "--out",
        str(tmp_path / "second"),
        "--json",
    ]
    result = CliRunner().invoke(app, ["replay", *arguments])

    assert result.exit_code == 0
    assert sorted(map(as_text, chat_server.bodies)) == first
    assert len(first) > 3
    assert (tmp_path / "second" / "plan.json").read_bytes() == (tmp_path / "first" / "plan.json").read_bytes()
    assert json.loads(result.stdout)["total"]["completed"] == len(first)


def as_text(body: object) -> str:
    return body.decode() if isinstance(body, bytes) else json.dumps(body)


def test_a_run_starts_its_image_server_and_closes_its_loop(chat_server, tmp_path):
    """A closed loop with images by URL through the same machinery: all asked, never more open than was allowed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    profile = tmp_path / "closed.toml"
    profile.write_text(
        'name = "closed"\nduration_s = 20.0\ndrain_s = 5.0\narrival = "closed"\norigin = "url"\n'
        f"closed = {{ concurrency = 2, requests = 6 }}\nimage_server = {{ port = {port} }}\n"
        "[classes.image_short]\nweight = 1\nimages = { min = 1, max = 1 }\nsizes = [[64, 48]]\n",
        encoding="utf-8",
    )

    result = run_bench(load_profile(str(profile)), chat_server.url, tmp_path / "run")

    samples = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    begun = sorted(sample["sent_s"] for sample in samples)
    ended = sorted(sample["ended_s"] for sample in samples)
    assert result.summary.total.completed == len(chat_server.bodies) == 6
    assert all(begun[k] >= ended[k - 2] for k in range(2, 6))
    assert all(f"http://127.0.0.1:{port}/" in as_text(body) for body in chat_server.bodies)
