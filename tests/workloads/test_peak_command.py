"""`toolkit peak` against a server on real sockets whose capacity is known."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from toolkit.cli.peak import peak
from toolkit.cli.surge import surge
from toolkit.core.errors import UsageFault
from workloads.peak_report import last_peak

from .conftest import ChatServer, Script, answer, serving

pytestmark = pytest.mark.slow

PROFILE = """
name = "little"
rate = {rate}
drain_s = 5.0
[classes.text_only]
weight = 1
text_tokens = {{ min = 8, max = 16 }}
max_tokens = {{ min = 1, max = 4 }}
[slo.standard]
ttft_s = 0.1
itl_p95_s = 0.0
"""


class SlottedServer(ChatServer):
    """Answers with `slots` requests at a time, each after `service_s`: slots / service_s per second, no more."""

    def __init__(self, slots: int = 1, service_s: float = 0.02) -> None:
        super().__init__()
        self.service_s = service_s
        self.slots = asyncio.Semaphore(slots)

    async def _answer(self, writer: asyncio.StreamWriter, script: Script) -> bool:
        if script.content_type != "text/event-stream":
            return await super()._answer(writer, script)
        async with self.slots:
            await asyncio.sleep(self.service_s)
        return await super()._answer(writer, script)


@pytest.fixture
def slotted() -> Iterator[SlottedServer]:
    server = SlottedServer()
    server.script = lambda body: Script(answer(1))
    with serving(server):
        yield server


@pytest.fixture(autouse=True)
def shared_process(monkeypatch):
    """The server is a thread of this process: its turns delay the generator, which is no fault to be found here."""
    monkeypatch.setattr("workloads.report.summary.MIN_SLIP_LIMIT_S", 1.0)


@pytest.fixture
def app():
    app = typer.Typer()
    app.command("peak")(peak)
    app.command("surge")(surge)
    return app


@pytest.fixture
def profile(tmp_path):
    def write(rate):
        path = tmp_path / "little.toml"
        path.write_text(PROFILE.format(rate=rate), encoding="utf-8")
        return str(path)

    return write


def ask(app, profile, server, folder, *more):
    quick = ["--objective", "0.8", "--confidence", "0.8", "--probe-seconds", "8", "--json"]
    return CliRunner().invoke(
        app, ["peak", "--profile", profile, "--url", server.url, "--out", str(folder), *quick, *more]
    )


def test_the_peak_of_a_server_of_known_capacity_is_bracketed(slotted, profile, app, tmp_path):
    """One slot of 20 ms: nothing over 50/s can hold, 10/s must; every probe leaves its run, and peak.json tells all."""
    result = ask(app, profile(10), slotted, tmp_path / "p", "--max-probes", "4")

    report = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert 10 <= report["peak"] <= 50
    assert report["peak"] < report["not_held"] <= 80
    assert len(report["probes"]) <= 4
    named = f"--profile {tmp_path}/little.toml --peak {report['peak']:g}"
    assert report["next"].startswith(f"toolkit surge {named}")
    for probe in report["probes"]:
        assert (tmp_path / "p" / probe["folder"] / "report.json").is_file()
    assert json.loads((tmp_path / "p" / "peak.json").read_text()) == report
    assert "| probe |" in (tmp_path / "p" / "peak.md").read_text()


def test_a_server_that_holds_no_rate_exits_1(chat_server, scripts, profile, app, tmp_path):
    """Everything is refused: the lowest rate allowed fails too, and the misses are named."""
    chat_server.script = lambda body: scripts.error(429, "queue_full")

    result = ask(app, profile(40), chat_server, tmp_path / "p", "--low", "20")

    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [probe["verdict"] for probe in report["probes"]] == ["failed", "failed"]
    assert report["peak"] is None
    assert "queue_full" in report["probes"][0]["misses"]


def test_ctrl_c_prints_what_is_known_and_exits_130(slotted, profile, app, tmp_path):
    """The probe under way is not counted."""

    def script(body):
        if len(slotted.bodies) == 30:
            os.kill(os.getpid(), signal.SIGINT)
        return Script(answer(1))

    slotted.script = script

    result = ask(app, profile(20), slotted, tmp_path / "p")

    report = json.loads(result.stdout)
    assert result.exit_code == 130
    assert report["interrupted"] is True
    assert report["probes"] == []
    assert json.loads((tmp_path / "p" / "peak.json").read_text()) == report


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
def test_a_probe_of_no_length_is_refused_as_that(slotted, profile, app, tmp_path, seconds):
    """Not as one that is too short."""
    result = ask(app, profile(10), slotted, tmp_path / "p", "--probe-seconds", seconds)

    assert isinstance(result.exception, UsageFault)
    assert "a number of seconds" in result.exception.message


def test_a_probe_too_short_to_decide_is_refused_before_anything_is_sent(slotted, profile, app, tmp_path):
    """The message says how long it must be."""
    result = ask(app, profile(10), slotted, tmp_path / "p", "--probe-seconds", "3")

    assert isinstance(result.exception, UsageFault)
    assert "even a faultless server needs" in result.exception.message
    assert slotted.bodies == []


def test_a_surge_without_a_peak_takes_the_last_one_or_asks_for_it(app, tmp_path, monkeypatch):
    """Of the same profile at the same target, from a finished search; the line says from where."""
    monkeypatch.setattr("toolkit.cli.surge.RUNS", tmp_path)
    for name, target, found, at in (
        ("a", "http://x", 3.0, 1),
        ("b", "http://x", 5.0, 2),
        ("c", "http://y", 9.0, 3),
    ):
        (tmp_path / name).mkdir()
        known = {"profile": "surge", "target": target, "finished": True, "peak": found, "started_at": at}
        (tmp_path / name / "peak.json").write_text(json.dumps(known))

    assert last_peak(tmp_path, "surge", "http://x") == (5.0, tmp_path / "b")
    assert last_peak(tmp_path, "mixed", "http://x") is None
    missing = CliRunner().invoke(app, ["surge", "--target", "http://127.0.0.1:9"])
    assert isinstance(missing.exception, UsageFault)
    assert "toolkit peak --profile surge" in missing.exception.message
