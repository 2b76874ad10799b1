"""`toolkit workload` shows what is asked, and repeats what was."""

import json
import os
from math import nan

import pytest
from PIL import Image
from typer.testing import CliRunner

from toolkit.cli.workload import ROWS, app
from toolkit.core.errors import UsageFault
from toolkit.core.plan import Plan
from workloads.compose import compose
from workloads.profile import load_profile
from workloads.show import describe, spearman

pytestmark = pytest.mark.slow


def test_show_prints_every_class():
    """A column per class, a histogram of prompts and of arrivals, and the comparison with text alone."""
    result = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["show", "smoke"])

    assert result.exit_code == 0
    for word in (
        "text_only",
        "image_short",
        "multi_image_long",
        "high_res",
        "prompt tokens",
        "arrivals",
        "Poisson: 1",
    ):
        assert word in result.stdout
    assert "variance of token lengths over text-only's" in result.stdout


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("smoke", "poisson arrivals at 1/s"),
        ("text-only", "poisson arrivals at 4/s"),
        ("mixed", "gamma arrivals at 4/s"),
        ("surge", "phases 80/200/80 % of a peak of 1.5/s"),
        ("soak", "poisson arrivals at 1/s"),
        ("kv-bound", "poisson arrivals at 3/s"),
    ],
)
def test_every_built_in_profile_says_what_it_offers(name, offered):
    """Its arrivals, what each class is promised, and how many requests, images and tokens to expect in a second."""
    result = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["show", name])

    assert result.exit_code == 0
    assert offered in result.stdout
    for row in ("SLO class", "requests/s", "images/s", "prompt tokens/s", "output tokens/s"):
        assert row in result.stdout


def test_images_by_url_are_shown_with_the_setting_that_lets_them_in(tmp_path):
    """A gateway fetches from no loopback server unless it is told to."""
    path = tmp_path / "url.toml"
    path.write_text(
        'name = "u"\norigin = "url"\nimage_server = { port = 9123 }\n[classes.image_short]\nweight = 1\n'
        "images = { min = 1, max = 1 }\nsizes = [[64, 48]]\n"
    )

    shown = CliRunner().invoke(app, ["show", str(path)]).stdout

    assert "--set 'access.allowed_hosts=[\"127.0.0.1:9123\"]'" in shown


def test_a_profile_chooses_its_pictures(tmp_path):
    """Pages alone for one class, the files of a folder for another."""
    Image.new("RGB", (60, 40), "red").save(tmp_path / "mine.png")
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "p"\n[classes.image_short]\nweight = 1\nimages = { min = 1, max = 1 }\nsizes = [[64, 48]]\n'
        "photo_share = 0.0\npage_share = 1.0\n[classes.multi_image_long]\nweight = 1\n"
        f'images = {{ min = 2, max = 2 }}\nfolder = "{tmp_path}"\n'
    )

    plan = compose(load_profile(str(path)))

    assert {
        (request.workload_class.value, image.source) for request in plan.requests for image in request.images
    } == {("image_short", "page"), ("multi_image_long", "file")}


def test_show_as_json_is_the_description():
    """Stable keys: counts that add up, and the ratio that mixed is built for."""
    shown = json.loads(CliRunner().invoke(app, ["show", "mixed", "--duration", "120", "--json"]).stdout)
    everything, *classes = shown["groups"]

    assert [group["name"] for group in classes] == [
        "text_only",
        "image_short",
        "multi_image_long",
        "high_res",
    ]
    assert sum(group["requests"] for group in classes) == everything["requests"] == sum(shown["slices"])
    assert everything["per_second"]["requests"] == pytest.approx(everything["requests"] / 120)
    assert sum(everything["bins"].values()) == everything["requests"]
    assert shown["variance_over_text_only"]["prompt_tokens"] >= 10
    assert shown["variance_over_text_only"]["text_tokens"] >= 10
    assert shown["gap_cv"] == pytest.approx(1.5, abs=0.3)


def test_show_tells_loops_and_conversations(tmp_path):
    """A closed loop has no arrivals to show; what is not known is null."""
    path = tmp_path / "closed.toml"
    path.write_text(
        'name = "c"\narrival = "closed"\nclosed = { concurrency = 4, requests = 9 }\n[classes.text_only]\nweight = 1\n'
    )

    plain = CliRunner().invoke(app, ["show", str(path)]).stdout
    shown = json.loads(CliRunner().invoke(app, ["show", str(path), "--json"]).stdout)

    assert "closed loop of 4" in plain and "arrivals" not in plain
    assert shown["gap_cv"] is None
    assert shown["rank_correlation"]["text_tokens/images"] is None


def test_a_plan_of_nothing_is_refused():
    """No request, no numbers."""
    result = CliRunner().invoke(app, ["show", "smoke", "--duration", "0.001", "--rate", "0.001"])

    assert isinstance(result.exception, UsageFault)
    with pytest.raises(ValueError, match="without requests"):
        describe(Plan("x", 1, 1.0, ()))


def test_the_description_follows_conversations(tmp_path):
    """A later turn's prompt holds what was said before."""
    path = tmp_path / "s.toml"
    path.write_text(
        'name = "s"\nrate = 3.0\nduration_s = 60.0\nsessions = { gap_s = 1.0 }\n[classes.text_only]\nweight = 1\n'
    )
    shown = describe(compose(load_profile(str(path))))

    assert shown.conversations > 5
    assert shown.everything.prompt_tokens.mean > 1.5 * shown.everything.text_tokens.mean


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [([1, 2, 3], [10, 20, 90], 1.0), ([1, 2, 3], [3, 2, 1], -1.0), ([1, 1, 1], [1, 2, 3], nan), ([1, 1, 2], [5, 5, 9], 1.0)],
)  # fmt: skip
def test_rank_correlation(one, other, expected):
    """Ranks only, ties shared, nothing said where nothing varies."""
    assert spearman(one, other) == pytest.approx(expected, nan_ok=True)


def test_replay_needs_a_run(tmp_path):
    """A folder without a plan is told."""
    result = CliRunner().invoke(app, ["replay", str(tmp_path)])

    assert isinstance(result.exception, UsageFault)
    assert "no plan.json" in str(result.exception)


def test_replay_of_the_latest_is_of_the_newest_run(tmp_path, monkeypatch):
    """By the time of its plan; without any run the error says how one is made, else which there is."""
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr("toolkit.cli.bench.bench", lambda profile, **_: asked.append(profile))
    none = CliRunner().invoke(app, ["replay", "latest"])
    for age, name in enumerate(("bench-new", "bench-old")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        plan = tmp_path / "runs" / name / "plan.json"
        plan.write_text("{}")
        os.utime(plan, (1000 - age, 1000 - age))

    found = CliRunner().invoke(app, ["replay", "latest"])
    wrong = CliRunner().invoke(app, ["replay", "bench-never"])

    assert "`toolkit bench` makes one" in str(none.exception)
    assert (found.exit_code, asked) == (0, ["runs/bench-new"])
    assert "the newest is runs/bench-new" in str(wrong.exception)


def test_eighty_columns_are_enough():
    """No class is cut, no label is broken, and every row says of what it is."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["show", "mixed"])

    assert "multi_image_long" in result.stdout
    assert all(f" {row} " in result.stdout for row in ROWS)
