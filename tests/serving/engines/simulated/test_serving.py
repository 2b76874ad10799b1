"""A service on simulated engines."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import orjson
import pytest

from serving.access.grid import grid_for
from serving.config import ServeConfig
from serving.engines.simulated.__main__ import limits, parse
from serving.topology import plan
from toolkit.core.config import validate
from toolkit.core.errors import UsageFault


def config(**engine: object) -> ServeConfig:
    return validate(ServeConfig, {"engine": {"kind": "simulated", **engine}, "gateway": {"port": 0}}, "test")


def test_the_plan_needs_neither_engine_environment_nor_model() -> None:
    """This interpreter, and "simulated" wherever a model would be named; the gateway's grid is the engines' own."""
    planned = plan(config(decode={"count": 2}))
    options = [parse(list(launch.argv[3:])) for launch in planned.launches]

    assert planned.model_path == planned.model_name == "simulated"
    assert [launch.argv[:3] for launch in planned.launches] == [
        (sys.executable, "-m", "serving.engines.simulated")
    ] * 3
    assert [one.role for one in options] == ["prefill", "decode", "decode"]
    assert options[0].bootstrap_port == planned.engines[0].bootstrap_port > 0
    grid = grid_for(planned.config.model, Path(planned.model_path))
    assert (grid.family, grid.tokens(640, 427)) == ("qwen2_5_vl", 247)


def test_its_engines_wait_as_long_as_real_ones() -> None:
    """The launcher's variables are read."""
    launch = plan(config()).launches[1]

    assert limits(parse(list(launch.argv[3:])), dict(launch.env)).waiting_timeout_s == 60


@pytest.mark.parametrize("given", [{"prefill": {"gpus": "0"}}, {"decode": {"gpus": "1"}}])
def test_gpu_ids_are_refused(given: dict[str, object]) -> None:
    """They would be ignored in silence."""
    with pytest.raises(UsageFault, match="simulated"):
        plan(config(**given))


def test_a_model_is_refused() -> None:
    """It would not be loaded."""
    named = config().model_copy(update={"model": config().model.model_copy(update={"path": "/m"})})
    with pytest.raises(UsageFault, match="leave out --model"):
        plan(named)


@pytest.mark.slow
def test_a_whole_service_on_stand_ins(tmp_path: Path) -> None:
    """Starts, says that it is simulated, answers through the gateway, and ends."""
    argv = [sys.executable, "-c", "from toolkit.cli import main; main()", "serve", "--json", "--port", "0",
            "--set", "engine.kind=simulated", "--set", f"runs_dir={tmp_path / 'runs'}"]  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            ready = next(
                event for event in map(orjson.loads, process.stdout) if event["event"] == "service_ready"
            )
            ask = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "model": ready["model"]}
            answer = httpx.post(f"{ready['url']}/v1/chat/completions", json=ask, timeout=30).json()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)

    assert ready["simulated"] is True and ready["model"] == "simulated"
    assert ready["photo"]["refusal"] == ""
    assert answer["usage"]["completion_tokens"] == 6
    assert process.returncode == 0
