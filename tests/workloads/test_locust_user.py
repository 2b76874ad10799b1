"""The plain user against the fixed-schedule server and its own stamps; in processes of their own, since locust patches
sockets and threads."""

import json
import statistics
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from workloads.fixed_server import Schedule, read_stamps
from workloads.selfcheck import FixedServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ITL_S = 0.01
SCHEDULE = Schedule(ttft_s=0.05, itl_s=ITL_S, events=33)
USERS, CHATS = 4, 10

OURS = """
import json, sys, gevent
from workloads.locust import LlmUser
from locust.env import Environment

class Reader(LlmUser):
    abstract = False
    host = sys.argv[1]
    model = "fixed-schedule"

environment = Environment(user_classes=[Reader])
told = []
environment.events.request.add_listener(
    lambda request_type, name, response_time, exception, **_: told.append([request_type, name, response_time, str(exception)])
)

def chats():
    user = Reader(environment)
    return [user.chat("Hello", name="text_only", max_tokens=31) for _ in range(int(sys.argv[3]))]

threads = [gevent.spawn(chats) for _ in range(int(sys.argv[2]))]
gevent.joinall(threads, raise_error=True)
found = [chat for thread in threads for chat in thread.value]
print(json.dumps({"ttft": [c.ttft_s for c in found], "codes": [c.code for c in found], "told": told}))
"""

ITER_LINES = """
import json, sys, time, gevent
from locust import FastHttpUser
from locust.env import Environment

class Reader(FastHttpUser):
    abstract = False
    host = sys.argv[1]

environment = Environment(user_classes=[Reader])
body = {"model": "fixed-schedule", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}

def chats():
    user, found = Reader(environment), []
    for _ in range(int(sys.argv[3])):
        began, first = time.perf_counter(), None
        for line in user.client.iter_lines("/v1/chat/completions", method="POST", json=body):
            if line.startswith("data:") and first is None:
                first = time.perf_counter() - began
        found.append(first)
    return found

threads = [gevent.spawn(chats) for _ in range(int(sys.argv[2]))]
gevent.joinall(threads, raise_error=True)
print(json.dumps({"ttft": [first for thread in threads for first in thread.value]}))
"""


def run(code, *args):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def error_s(code):
    """The median TTFT that a user reads minus the one that the server wrote, and all that it told."""
    with FixedServer(SCHEDULE) as server:
        found = run(code, server.url, USERS, CHATS)
        with urllib.request.urlopen(f"{server.url}/stamps") as answer:
            stamps = read_stamps(answer.read())
    there = statistics.median(stamp.written_at[0] - stamp.received_at for stamp in stamps)
    return statistics.median(found["ttft"]) - there, found


def test_its_first_token_is_seen_when_it_comes():
    """TTFT error p50 within half an ITL; entries per class for the answer, its first token and each gap."""
    error, found = error_s(OURS)

    kinds = [kind for kind, *_ in found["told"]]
    assert abs(error) <= 0.5 * ITL_S
    assert found["codes"] == [None] * USERS * CHATS
    assert {name for _, name, *_ in found["told"]} == {"text_only"}
    assert kinds.count("CHAT") == kinds.count("TTFT") == USERS * CHATS
    assert kinds.count("ITL") == (SCHEDULE.tokens - 1) * USERS * CHATS


def test_the_reason_not_to_use_iter_lines():
    """locust's own way to read lines sees the first token more than two ITLs late: it waits for 1,024 bytes."""
    error, _ = error_s(ITER_LINES)

    assert error > 2 * ITL_S


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("refused", "queue_full"),
        ("truncated", "truncated"),
        ("error event", "engine_died"),
        ("no end", "no_finish_reason"),
    ],
)
def test_a_server_that_fails_is_an_entry_and_no_exception(chat_server, scripts, script, code):
    """Refusals, truncated streams and errors under HTTP 200 are failures by their code; the next chat works."""
    cut = scripts()
    answers = {
        "refused": scripts.error(429, "queue_full"),
        "truncated": type(cut)(cut.pieces[:3], cut=True),
        "error event": type(cut)(
            [*cut.pieces[:2], b'data: {"error": {"message": "m", "code": "engine_died"}}\n\n']
        ),
        "no end": type(cut)(cut.pieces[:3]),
    }
    chat_server.script = lambda body: answers[script] if len(chat_server.bodies) == 1 else scripts()

    found = run(OURS, chat_server.url, 1, 2)

    failures = [failure for kind, _, _, failure in found["told"] if kind == "CHAT"]
    assert found["codes"] == [code, None]
    assert failures == [code, "None"]


def test_the_locustfile_of_the_docs_runs(tmp_path):
    """As it stands there, by locust's own command: its requests are in locust's statistics."""
    page = (Path(__file__).parents[2] / "docs/loading.md").read_text()
    locustfile = tmp_path / "locustfile.py"
    locustfile.write_text(page.partition("```python\n")[2].partition("```")[0])

    with FixedServer(Schedule(ttft_s=0.02, itl_s=0.001, events=5)) as server:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "locust",
                "-f",
                locustfile,
                "--headless",
                "--host",
                server.url,
                "--users",
                "2",
                "--spawn-rate",
                "2",
                "--run-time",
                "3s",
                "--json",
                "--only-summary",
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert done.returncode == 0, done.stderr
    rows = {(row["method"], row["name"]): row["num_requests"] for row in json.loads(done.stdout)}
    assert rows.keys() == {(kind, "text_only") for kind in ("CHAT", "TTFT", "ITL")}
    assert rows["CHAT", "text_only"] >= 2


def test_nobody_there_is_an_entry_too():
    """A connection that is refused is a failure, not a traceback."""
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, not listening
        found = run(OURS, f"http://127.0.0.1:{held.getsockname()[1]}", 1, 1)

    assert found["codes"] == ["connect_failed"]
