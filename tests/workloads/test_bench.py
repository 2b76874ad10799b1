"""A whole run against a chat server on real sockets, from the profile to the report."""

import base64
import io
import json
import os
import signal
import subprocess
import sys

import pytest
from PIL import Image
from typer.testing import CliRunner

from toolkit.core.errors import EnvironmentFault, UsageFault
from toolkit.core.plan import Plan
from workloads.bench import run_bench
from workloads.profile import load_profile
from workloads.record import LoadSample
from workloads.target import FALLBACK_URL, base_url, default_url

pytestmark = pytest.mark.slow

SMALL = """
name = "small"
duration_s = 0.4
rate = 40.0
drain_s = 5.0
extra_body = { temperature = 0.5 }
[classes.text_only]
weight = 1
slo_class = "realtime"
[classes.multi_image_long]
weight = 1
images = { min = 2, max = 2 }
sizes = [[64, 48]]
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


def test_a_run_leaves_everything_in_its_folder(chat_server, small, tmp_path):
    """Plan, effective profile, a sample per request, and the report; all of them consistent."""
    folder = tmp_path / "run"

    result = run_bench(load_profile(small), chat_server.url + "/v1/", folder)

    plan = Plan.from_json((folder / "plan.json").read_bytes())
    samples = [
        LoadSample.from_dict(json.loads(line)) for line in (folder / "samples.jsonl").read_text().splitlines()
    ]
    report = json.loads((folder / "report.json").read_text())
    assert load_profile(str(folder / "profile.toml")) == load_profile(small)
    assert sorted(s.index for s in samples) == [r.index for r in plan.requests]
    assert all(s.completed for s in samples)
    assert (
        report["total"]["completed"]
        == result.summary.total.completed
        == len(plan.requests)
        == len(chat_server.bodies)
    )
    assert report["total"]["tokens"] == 3 * len(plan.requests)
    assert report["run"]["model"] == "tiny-vlm"
    assert (folder / "report.md").read_text().startswith("# Load report: small")


def test_requests_are_openai_chat_with_inline_images(chat_server, small, tmp_path):
    """Images come as JPEG data URIs before the text; usage is asked for; the SLO class is a header."""
    run_bench(load_profile(small), chat_server.url, tmp_path / "run", api_key="sesame")

    bodies = list(zip(chat_server.bodies, chat_server.headers, strict=True))
    pictures = [
        (body, headers) for body, headers in bodies if isinstance(body["messages"][0]["content"], list)
    ]
    texts = [(body, headers) for body, headers in bodies if isinstance(body["messages"][0]["content"], str)]
    assert pictures
    assert texts
    body, headers = pictures[0]
    *images, text = body["messages"][0]["content"]
    assert [part["type"] for part in images] == ["image_url", "image_url"]
    for part in images:
        kind, data = part["image_url"]["url"].split(",")
        assert kind == "data:image/jpeg;base64"
        assert Image.open(io.BytesIO(base64.b64decode(data))).size == (64, 48)
    assert text["type"] == "text"
    assert (body["model"], body["stream"], body["temperature"]) == ("tiny-vlm", True, 0.5)
    assert body["stream_options"] == {"include_usage": True}
    assert (headers["x-slo-class"], texts[0][1]["x-slo-class"]) == ("standard", "realtime")
    assert headers["authorization"] == "bearer sesame"


def test_failures_set_the_exit_code(chat_server, scripts, small, tmp_path, app):
    """One refused request: exit 1, its code in the report, the table still printed."""
    chat_server.script = lambda body: (
        scripts.error(429, "queue_full") if len(chat_server.bodies) == 2 else scripts()
    )

    result = CliRunner().invoke(
        app, ["--profile", small, "--url", chat_server.url, "--out", str(tmp_path / "r")]
    )

    assert result.exit_code == 1
    assert "queue_full 1" in result.stdout
    assert "text_only" in result.stdout


def test_json_goes_to_stdout_alone(chat_server, small, tmp_path, app):
    """`--json` is one JSON document; flags win over the profile."""
    args = ["--profile", small, "--url", chat_server.url, "--out", str(tmp_path / "r"), "--json"]

    result = CliRunner().invoke(app, [*args, "--rate", "30", "--duration", "0.5", "--seed", "9"])

    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (report["run"]["rate"], report["run"]["seed"], report["window_s"]) == (30.0, 9, 0.5)


def test_nothing_there_is_an_environment_fault(small, tmp_path):
    """A clear message before anything is prepared or written."""
    with pytest.raises(EnvironmentFault, match="nothing answers"):
        run_bench(load_profile(small), "http://127.0.0.1:9", tmp_path / "run")

    assert not (tmp_path / "run").exists()


def test_preflight_tells_what_is_wrong(chat_server, scripts, small, tmp_path):
    """Not ready, no such API, and a missing key are three different messages."""
    profile = load_profile(small)

    chat_server.ready = scripts([b"no pair is ready"], 503, "text/plain")
    with pytest.raises(EnvironmentFault, match="no pair is ready"):
        run_bench(profile, chat_server.url, tmp_path / "run")

    chat_server.ready = scripts([b"not found"], 404, "text/plain")
    chat_server.models = scripts([b"<html>"], 200, "text/html")
    with pytest.raises(EnvironmentFault, match="OpenAI-compatible"):
        run_bench(profile, chat_server.url, tmp_path / "run")

    chat_server.models = scripts.error(401, "unauthorized")
    with pytest.raises(UsageFault, match="--api-key"):
        run_bench(profile, chat_server.url, tmp_path / "run")

    with pytest.raises(UsageFault, match="http://"):
        run_bench(profile, "ftp://x", tmp_path / "run")


def test_bodies_that_do_not_fit_are_refused(chat_server, small, tmp_path):
    """The limit on memory is a message, not an out-of-memory kill."""
    profile = load_profile(small, {"max_body_bytes": 2000})

    with pytest.raises(UsageFault, match="lower rate"):
        run_bench(profile, chat_server.url, tmp_path / "run")


def test_a_run_folder_is_never_overwritten(chat_server, small, tmp_path):
    """Two runs into one folder would mix their samples."""
    run_bench(load_profile(small), chat_server.url, tmp_path / "run")

    with pytest.raises(UsageFault, match="--out"):
        run_bench(load_profile(small), chat_server.url, tmp_path / "run")


def test_the_default_target_is_the_service_started_last(tmp_path):
    """runs/latest/service.json names the gateway; without it the default port."""
    assert default_url(tmp_path) == FALLBACK_URL
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "service.json").write_text('{"gateway_url": "http://127.0.0.1:8123"}')

    assert default_url(tmp_path) == "http://127.0.0.1:8123"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("127.0.0.1:8123", "http://127.0.0.1:8123"),
        ("localhost:8123/v1/", "http://localhost:8123"),
        ("https://h/v1", "https://h"),
    ],
)
def test_a_target_may_be_typed_short(typed, meant):
    """HOST:PORT is http."""
    assert base_url(typed) == meant


def test_a_model_that_is_not_served_is_told_with_those_that_are(chat_server, small, tmp_path):
    """The list comes from the target's own page."""
    result = run_bench(load_profile(small), chat_server.url.removeprefix("http://"), tmp_path / "run", "foo")

    assert result.facts.model == "foo"
    assert result.facts.served
    assert "foo" not in result.facts.served


def test_interrupting_keeps_what_was_recorded(chat_server, small, tmp_path, app):
    """Ctrl-C in mid-run: exit 130, and the report covers what was sent until then."""

    def script(body):
        if len(chat_server.bodies) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return default(body)

    default, chat_server.script = chat_server.script, script
    args = ["--profile", small, "--url", chat_server.url, "--out", str(tmp_path / "r"), "--duration", "20"]
    before = signal.getsignal(signal.SIGINT)

    result = CliRunner().invoke(app, args)

    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert result.exit_code == 130
    assert report["interrupted"] is True
    assert 4 <= report["total"]["offered"] < 100
    assert signal.getsignal(signal.SIGINT) is before


def test_the_command_line_stays_light():
    """Importing the command loads neither numpy nor Pillow nor the generator."""
    code = "import sys, toolkit.cli.bench; print([m for m in ('numpy', 'PIL', 'uvloop', 'workloads.bench') if m in sys.modules])"

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "[]"
