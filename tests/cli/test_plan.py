"""`toolkit plan cpu` as people use it, from a measurement that is there."""

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from serving.access.recipe import recipe
from serving.config import ServeConfig
from serving.plan_cpu import ImageCost, RequestCost
from serving.plan_store import Measurement, fingerprint, keep, store
from toolkit.cli.plan import _served, _silence, _told_from, app
from toolkit.cli.plan_load import DRAWN, SENT, load_of
from toolkit.core.errors import UsageFault
from workloads.profile import load_profile

pytestmark = pytest.mark.slow

IMAGE = ImageCost(20, 0.09, 0.1, 0.1, 0.1, 0.09, 0.11, 0.1, 0.2, 0.5)
CLASSES = ("text_only", "image_short", "multi_image_long", "high_res")


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1 s an image and 0.01 s a request of every class of `mixed`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config, grid, _ = _served(ServeConfig())
    one = Measurement(
        profile="mixed", load=load_of(load_profile("mixed")).digest, recipe=recipe(config.access, grid).hex(),
        host=fingerprint(), measured_at=1.8e9, taken_s=60.0, cores=2, idle_cores=0.0,
        images=dict.fromkeys(CLASSES[1:], IMAGE), requests=dict.fromkeys(CLASSES, RequestCost(50, 0.01, 0.008, 0.01, 0.008)),
    )  # fmt: skip
    keep(one, store({"XDG_CACHE_HOME": str(tmp_path)}))


def plan(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, ["cpu", *words])


def test_a_stored_measurement_is_planned_with(stored: None) -> None:
    """No --measure: seconds, not minutes. Images per request and shares are the profile's."""
    done = json.loads(plan("--profile", "mixed", "--qps", "10", "--json").stdout)
    load = {asked.name: asked for asked in load_of(load_profile("mixed")).classes}
    images = sum(asked.share * asked.images for asked in load.values())

    assert done["busy"] == pytest.approx(10 * (images * 0.1 + 0.01))
    assert done["cores"] >= done["busy"] / 0.7
    assert {
        "profile",
        "host",
        "classes",
        "gateways",
        "cores_per_gateway",
        "saved",
        "waits_s",
        "notes",
    } <= set(done)


def test_the_table_says_every_class_and_what_is_not_in_it(stored: None) -> None:
    """People read it before they buy."""
    said = plan("--qps", "10", "--cores-per-gateway", "4").stdout

    for word in (
        *CLASSES,
        "CPU ms/image p50",
        "95 % bounds",
        "with 30% headroom",
        "gateway process",
        "Not in it",
    ):
        assert word in said
    assert "some come again" in said


def test_cache_hits_and_less_headroom_need_fewer_cores(stored: None) -> None:
    """What each flag is for."""
    words = ("--qps", "100", "--json")
    plain = json.loads(plan(*words).stdout)
    hits = json.loads(plan(*words, "--cache-hit", "0.5").stdout)
    tight = json.loads(plan(*words, "--headroom", "0").stdout)

    assert hits["cores"] < plain["cores"]
    assert hits["busy"] + hits["saved"] == pytest.approx(plain["busy"])
    assert tight["cores"] < plain["cores"]


def test_another_handover_was_not_measured(stored: None) -> None:
    """What is encoded differently costs differently: it says what to do."""
    done = plan("--qps", "10", "--set", "access.handover=jpeg")

    assert isinstance(done.exception, UsageFault)
    assert "add --measure" in done.exception.message


def test_a_profile_is_drawn_at_no_rate_of_its_own() -> None:
    """A minute at 1/s has seven large photos: too few to know what one costs. Shares are the weights, exactly."""
    load = load_of(load_profile("smoke"))
    shares = {asked.name: asked.share for asked in load.classes}

    assert sum(len(asked.requests) for asked in load.classes) == DRAWN
    assert shares == pytest.approx(
        {"text_only": 0.4, "image_short": 0.35, "multi_image_long": 0.15, "high_res": 0.1}
    )
    assert load.digest == load_of(load_profile("smoke", {"rate": 7.0, "seed": 3})).digest
    assert load.digest != load_of(load_profile("mixed")).digest


def test_sent_requests_answer_as_long_as_their_class() -> None:
    """Two dozen stand for hundreds."""
    load = load_of(load_profile("text-only"))
    (asked,) = load.classes
    bodies = [json.loads(one.body)["max_tokens"] for one in load.bodies("m")["text_only"]]
    mean = sum(request.max_tokens for request in asked.requests) / len(asked.requests)

    assert len(bodies) == SENT
    assert sum(bodies) / len(bodies) == pytest.approx(mean, rel=0.1)


def test_minutes_of_measuring_are_not_silent(capfd: pytest.CaptureFixture[str]) -> None:
    """A line now and then on stderr, terminal or not; none with --json."""
    tell = _told_from(time.monotonic())
    tell("images", True)
    for number in range(100):
        tell(f"image {number}", False)
    tell("requests", True)
    _silence("requests", True)

    shown = capfd.readouterr()
    assert [line.split("s  ")[1] for line in shown.err.splitlines()] == ["images", "requests"]
    assert shown.out == ""
