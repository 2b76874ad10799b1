"""`toolkit serve --check`, and the same check before a start."""

import json

import pytest
from typer.testing import CliRunner

from serving import topology
from toolkit.cli import app, serve
from toolkit.core.errors import UsageFault

SIMULATED = ["serve", "--port", "0", "--set", "engine.kind=simulated"]
CPU = ["serve", "--port", "0", "--set", "engine.kind=cpu"]
WRONG = ["--set", 'engine.extra_args=["--kv-cache-dtype", "int8"]']


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_nothing_wrong_exits_with_0() -> None:
    """Stand-ins need no model and no SGLang; rules on arguments say that they did not look."""
    done = run(*SIMULATED, "--check", "--set", 'engine.extra_args=["--speed", "2"]')

    assert done.exit_code == 0
    assert "not looked at: argument-unknown" in done.stdout
    assert "simulated engines are not SGLang" in done.stdout


def test_an_error_exits_with_1_and_says_what_to_write() -> None:
    """The rule, the reason, where it stands, the line."""
    done = run(*CPU, *WRONG, "--check")

    assert done.exit_code == 1
    assert "error  kv-int8  prefill-0, decode-0: --kv-cache-dtype int8" in done.stdout
    assert "sglang/srt/arg_groups/fields/model.py:" in done.stdout
    assert 'fix  engine.extra_args = ["--kv-cache-dtype", "fp8_e4m3"]' in done.stdout


def test_json_has_stable_keys() -> None:
    """One document, for scripts."""
    done = run(*CPU, *WRONG, "--check", "--json")
    document = json.loads(done.stdout)

    assert done.exit_code == 1
    assert set(document) == {"version", "worst", "findings", "together", "unchecked", "rules"}
    assert (document["version"], document["worst"]) == (1, "error")
    assert set(document["findings"][0]) == {"id", "severity", "where", "what", "why", "source", "fix"}
    assert all(set(one) == {"reason", "rules"} for one in document["unchecked"])


def test_attached_engines_are_not_known() -> None:
    """What was not looked at is said; nobody is asked."""
    done = run("serve", "--port", "0", "--check", "--attach-prefill", "http://127.0.0.1:9", "--attach-decode", "http://127.0.0.1:10")  # fmt: skip

    assert done.exit_code == 0
    assert "the engines run already" in done.stdout


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What would be started, and is not."""
    plans: list[object] = []

    def keep(planned: object, *, as_json: bool) -> None:
        plans.append(planned)

    monkeypatch.setattr(serve, "run", keep)
    monkeypatch.setattr(topology, "engine_python", lambda config, *, dry: "python")
    monkeypatch.setattr(
        topology.tiny_model, "ensure", lambda cache, python: topology.tiny_model.folder(cache)
    )
    return plans


def test_serve_refuses_what_would_not_serve(started: list[object]) -> None:
    """Before anything is started."""
    done = run(*CPU, *WRONG)

    assert isinstance(done.exception, UsageFault)
    assert "kv-int8" in done.exception.message
    assert 'engine.extra_args = ["--kv-cache-dtype", "fp8_e4m3"]' in done.exception.message
    assert started == []


def test_serve_can_be_told_not_to_check(started: list[object]) -> None:
    """For who knows better."""
    done = run(*CPU, *WRONG, "--no-check")

    assert done.exit_code == 0
    assert len(started) == 1


def test_serve_starts_in_spite_of_warnings_and_names_them(started: list[object]) -> None:
    """In one line on stderr: standard output may be JSON events."""
    done = run(*CPU, "--set", "gateway.drain_timeout_s=0.5", "--set", "retry.budget_share=0.5")

    assert done.exit_code == 0
    assert len(started) == 1
    assert done.stdout == ""
    assert [line for line in done.stderr.splitlines() if "drain-under-budget, retries-add-load" in line]
