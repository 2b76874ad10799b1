"""Whatever a target or a user does, a run ends with a record or with a word on what to change."""

import errno
import json
import os
import resource
import signal

import pytest
from typer.testing import CliRunner

from toolkit.core.errors import EnvironmentFault, UsageFault
from toolkit.core.http.errors import ConnectFailed
from workloads import target
from workloads.answer import StreamedAnswer, WholeAnswer, error_ending
from workloads.bench import run_bench
from workloads.client import _transport_code
from workloads.compose import compose
from workloads.folders import begin, released_unused
from workloads.profile import load_profile
from workloads.record import GENERATOR_LIMIT
from workloads.report.summary import summarise
from workloads.selfcheck import self_check

SMALL = """
name = "small"
duration_s = 0.4
rate = 40.0
drain_s = 5.0
[classes.text_only]
weight = 1
"""
ODD = [
    [1, 2],
    "abc",
    {"completion_tokens": "abc"},
    {"completion_tokens": -5},
    {"completion_tokens": {"a": 1}},
]


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


def streamed(**last) -> StreamedAnswer:
    answer = StreamedAnswer()
    answer.feed(b"data: " + json.dumps(last).encode() + b"\n\n", 1.0)
    return answer


@pytest.mark.parametrize("usage", [*ODD, {"completion_tokens": 1e300}, {"completion_tokens": True}])
def test_a_usage_that_counts_nothing_is_no_usage(usage):
    """Tokens are then counted as they came; totals are made of these numbers, for every request."""
    choices = [{"delta": {"content": "a"}, "message": {"content": "a"}, "finish_reason": "stop"}]
    stream, whole = streamed(choices=choices, usage=usage), WholeAnswer()
    whole.feed(json.dumps({"choices": choices, "usage": usage}).encode(), 1.0)

    assert (stream.ending().code, whole.ending().code) == (None, None)
    assert (stream.usage, whole.usage) == ({}, {})


@pytest.mark.parametrize("reason", [["a"], {"a": 1}, 7])
def test_a_finish_reason_that_is_no_text_is_a_bad_answer(reason):
    """It is recorded as the server's fault and does not stop the reader."""
    choices = [{"delta": {"content": "a"}, "message": {"content": "a"}, "finish_reason": reason}]
    whole = WholeAnswer()
    whole.feed(json.dumps({"choices": choices}).encode(), 1.0)

    assert streamed(choices=choices).ending().code == "bad_event"
    assert whole.ending().code == "bad_body"


@pytest.mark.parametrize("code", ["z" * 60_000, "a\nb", ""])
def test_a_code_that_is_no_name_counts_under_its_status(code):
    """Reports have one line per code."""
    assert error_ending({"error": {"code": code}}, "http_500").code == "http_500"


def test_a_target_that_never_answers_is_told_of(chat_server, scripts, small, tmp_path, monkeypatch):
    """Nothing waits for ever before the load begins."""
    monkeypatch.setattr(target, "ANSWER_S", 0.05)
    chat_server.models = scripts([b" "], hang=True)

    with pytest.raises(EnvironmentFault, match="does not answer within"):
        run_bench(load_profile(small), chat_server.url, tmp_path / "run")


@pytest.mark.parametrize("asked", [{"rate": float("inf")}, {"duration_s": float("inf")}, {"rate": 1e9}])
def test_a_load_that_nobody_could_hold_is_refused_at_once(small, asked):
    """An endless plan is a message, not a machine without memory."""
    with pytest.raises(UsageFault, match=r"finite|lower rate"):
        compose(load_profile(small, asked))


@pytest.mark.parametrize(("rate", "duration_s"), [(-1.0, 1.0), (float("nan"), 1.0), (float("inf"), 1.0), (5.0, float("nan")), (1e9, 1e9)])  # fmt: skip
def test_a_self_check_at_no_rate_is_refused(rate, duration_s):
    """Before its server is started."""
    with pytest.raises(UsageFault):
        self_check(rate, duration_s)


def test_a_folder_that_cannot_be_written_is_told_of(tmp_path):
    """Before anything is sent."""
    file = tmp_path / "file"
    file.touch()

    for folder, words in ((file, "is no folder"), (file / "below", "cannot be written")):
        with pytest.raises(UsageFault, match=words):
            begin(folder, "", b"")


def test_a_folder_is_one_runs(tmp_path):
    """From before its first record, and again free where there was none."""
    begin(tmp_path / "run", "", b"")
    with pytest.raises(UsageFault, match="holds a run"):
        begin(tmp_path / "run", "", b"")

    with pytest.raises(KeyboardInterrupt), released_unused(tmp_path / "run"):
        raise KeyboardInterrupt
    begin(tmp_path / "run", "", b"")


def test_records_that_could_not_be_written_are_told_of(chat_server, small, tmp_path, monkeypatch):
    """The report is of the whole run, and the command says that the records are not."""
    monkeypatch.setattr("workloads.bench.SAMPLES", "nowhere/samples")

    with pytest.raises(EnvironmentFault, match="lost"):
        run_bench(load_profile(small), chat_server.url, tmp_path / "run")

    assert json.loads((tmp_path / "run" / "report.json").read_text())["total"]["offered"] > 0


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EADDRNOTAVAIL])
def test_sockets_that_this_side_lacks_are_no_fault_of_the_servers(number):
    """They have a code of their own."""
    failed = ConnectFailed("no socket")
    failed.__cause__ = OSError(number, "none left")
    assert _transport_code(failed) == GENERATOR_LIMIT


def test_a_run_may_open_as_many_files_as_its_process_may(chat_server, small, tmp_path):
    """The soft limit of a shell is no limit on the load."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), most))
    try:
        run_bench(load_profile(small), chat_server.url, tmp_path / "run")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


def test_sigterm_keeps_what_was_recorded(chat_server, small, tmp_path, app):
    """Who ends a run from outside gets its report as well."""

    def script(body):
        if len(chat_server.bodies) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return default(body)

    default, chat_server.script = chat_server.script, script
    before = signal.getsignal(signal.SIGTERM)
    args = ["--profile", small, "--url", chat_server.url, "--out", str(tmp_path / "r"), "--duration", "20"]

    result = CliRunner().invoke(app, args)

    assert result.exit_code == 130
    assert json.loads((tmp_path / "r" / "report.json").read_text())["interrupted"] is True
    assert signal.getsignal(signal.SIGTERM) is before


def test_no_sample_is_no_division(small):
    """A run that was stopped before its first request still has a summary."""
    summary = summarise((), load_profile(small).slo.slos(), 0.0, 0.0, True, 0.0)

    assert (summary.total.offered, summary.total.attainment, summary.every[-1].name) == (0, None, "all")
