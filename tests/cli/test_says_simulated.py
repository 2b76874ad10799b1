"""Nobody can take a stand-in for an engine: every place that tells what runs says that it is simulated."""

import pytest
from typer.testing import CliRunner

from serving.config import ServeConfig
from serving.launcher import FirstAnswer
from serving.service import Service
from serving.topology import plan
from toolkit.cli import app
from toolkit.cli.progress import Progress, banner
from toolkit.core.slo import DEFAULT_SLOS
from workloads.report.render import RunFacts, to_json, to_markdown
from workloads.report.summary import summarise


def service(kind: str, name: str) -> Service:
    config = ServeConfig.model_validate({"engine": {"kind": kind}})
    return Service(config=config, engines=(), gateway_url="http://127.0.0.1:1", model_name=name, started_at=0)


def test_the_banner(tmp_path) -> None:
    """In capitals beside the model's name."""
    told = [banner(service(kind, "m"), tmp_path, FirstAnswer(0.1), 1.0) for kind in ("simulated", "cpu")]

    assert ["SIMULATED engines: no model computes here" in text for text in told] == [True, False]


def test_the_first_line(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is started."""
    planned = plan(ServeConfig.model_validate({"engine": {"kind": "simulated"}, "gateway": {"port": 0}}))
    with Progress(planned, tmp_path, as_json=False):
        pass

    assert "starting simulated prefill-0, decode-0 and the gateway" in capsys.readouterr().out


def test_service_json(tmp_path) -> None:
    """For whoever finds the run folder later."""
    planned = plan(ServeConfig.model_validate({"engine": {"kind": "simulated"}, "gateway": {"port": 0}}))
    planned.service().write(tmp_path)
    written = Service.read(tmp_path)

    assert (written.config.engine.kind, written.model_name) == ("simulated", "simulated")


@pytest.mark.parametrize(("model", "says"), [("simulated", True), ("tiny-qwen2.5-vl-v2", False)])
def test_the_report_of_a_load(model: str, says: bool) -> None:
    """Its times are a formula's, so they must not travel as a machine's."""
    facts = RunFacts("smoke", "http://127.0.0.1:1", model, 1, "poisson", 2.0, 1.7e9, "0.1.0")
    summary = summarise([], DEFAULT_SLOS, 1.0, measured_s=1.0, interrupted=False, cpu_share=0.1)

    assert ("SIMULATED engine" in to_markdown(facts, summary)) is says
    assert ("simulated" in str(to_json(facts, summary)["run"])) is says


def test_the_dry_run() -> None:
    """Its commands start stand-ins."""
    done = CliRunner().invoke(app, ["serve", "--set", "engine.kind=simulated", "--port", "0", "--dry-run"])

    assert done.exit_code == 0
    assert "serving.engines.simulated" in done.output
