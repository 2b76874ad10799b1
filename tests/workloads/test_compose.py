"""From a profile to a plan: the mix that was asked for, the same for the same seed."""

from collections import Counter

import numpy as np
import pytest

from toolkit.core.errors import UsageFault
from toolkit.core.plan import Plan
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.compose import compose
from workloads.mix import draw_classes
from workloads.profile import Profile, built_in_profiles, load_profile, to_toml
from workloads.texts import IMAGE_ASKS, TEXT_ASKS, compose_text, estimate_tokens


def test_the_same_seed_gives_the_same_bytes():
    """Plans repeat to the byte, and another seed is another plan."""
    plan = compose(load_profile("smoke"))

    assert compose(load_profile("smoke")).to_json() == plan.to_json()
    assert compose(load_profile("smoke", {"seed": 2})).to_json() != plan.to_json()
    assert Plan.from_json(plan.to_json()) == plan


def test_smoke_is_what_it_says():
    """60 s at 1/s, all four classes, each of its own kind."""
    profile = load_profile("smoke")
    plan = compose(profile)
    by_class = {
        name: [r for r in plan.requests if r.workload_class is name] for name in profile.classes.present()
    }

    assert 40 <= len(plan.requests) <= 85
    assert len(by_class) == 4
    assert all(by_class.values())
    assert all(
        r.slo_class is SloClass.STANDARD and r.stream and 8 <= r.max_tokens <= 32 for r in plan.requests
    )
    assert {len(r.images) for r in by_class[WorkloadClass.TEXT_ONLY]} == {0}
    assert {len(r.images) for r in by_class[WorkloadClass.IMAGE_SHORT]} == {1}
    assert {len(r.images) for r in by_class[WorkloadClass.MULTI_IMAGE_LONG]} <= {2, 3, 4}
    assert all(i.width * i.height >= 6_000_000 for r in by_class[WorkloadClass.HIGH_RES] for i in r.images)
    assert {i.source for r in plan.requests for i in r.images} == {"natural", "china", "flower"}


def test_a_higher_rate_asks_the_same_questions():
    """Draws belong to a request's number, not to its time: runs at two rates differ in pace only."""
    slow = compose(load_profile("smoke", {"rate": 1.0})).requests
    fast = compose(load_profile("smoke", {"rate": 4.0})).requests

    assert [(r.workload_class, r.text, r.images) for r in fast[: len(slow)]] == [
        (r.workload_class, r.text, r.images) for r in slow
    ]


@pytest.mark.slow
def test_lengths_are_drawn_apart():
    """A long text does not come with many images and a long answer (one draw for all would make it so)."""
    requests = compose(load_profile("smoke", {"duration_s": 2000.0})).requests
    many = [r for r in requests if r.workload_class is WorkloadClass.MULTI_IMAGE_LONG]
    table = np.array([(len(r.text), len(r.images), r.max_tokens) for r in many], dtype=float)

    assert np.abs(np.corrcoef(table.T)[~np.eye(3, dtype=bool)]).max() < 0.2


def test_the_mix_follows_its_weights():
    """Shares come out as the weights, whatever these sum to; a weight of 0 is never drawn."""
    weights = {WorkloadClass.TEXT_ONLY: 3.0, WorkloadClass.IMAGE_SHORT: 0.0, WorkloadClass.HIGH_RES: 1.0}

    drawn = Counter(draw_classes(weights, 8000, np.random.default_rng(1)))

    assert drawn[WorkloadClass.TEXT_ONLY] / 8000 == pytest.approx(0.75, abs=0.02)
    assert drawn[WorkloadClass.IMAGE_SHORT] == 0
    assert (
        draw_classes(weights, 5, np.random.default_rng(1))
        == draw_classes(weights, 50, np.random.default_rng(1))[:5]
    )
    with pytest.raises(ValueError, match="weight"):
        draw_classes({WorkloadClass.TEXT_ONLY: 0.0}, 1, np.random.default_rng(1))


@pytest.mark.parametrize("tokens", [32, 100, 512, 2048])
def test_prompts_have_the_length_asked_for(tokens):
    """Never longer, and at most one sentence shorter."""
    lengths = [estimate_tokens(compose_text(TEXT_ASKS, tokens, np.random.default_rng(s))) for s in range(20)]

    assert all(tokens - 32 <= length <= tokens for length in lengths)


def test_a_prompt_is_never_less_than_its_question():
    """A length under that of the instruction gives the instruction alone."""
    assert compose_text(IMAGE_ASKS, 1, np.random.default_rng(0)) in IMAGE_ASKS


@pytest.mark.parametrize("name", built_in_profiles())
def test_the_effective_profile_reads_back(name, tmp_path):
    """profile.toml of a run folder is a profile again, equal to the one that ran."""
    profile = load_profile(
        name, {"rate": 3.25, "extra_body": {"temperature": 0.5, "stop": ["a\n"], "x": {"y z": True}}}
    )
    path = tmp_path / "profile.toml"
    path.write_text(to_toml(profile), encoding="utf-8")

    assert load_profile(str(path)) == profile


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rat = 3", "did you mean 'rate'"),
        ("rate = 0", "rate"),
        ("seed = -1", "seed"),
        ('arrival = "bursty"', "arrival"),
        ("[classes.text_only]\nwieght = 1", "did you mean 'weight'"),
        ("[classes.video]\nweight = 1", "video"),
        ("[classes.text_only]\nweight = 0", "weight above 0"),
        ("[classes.image_short]\nweight = 1\nimages = {min = 1, max = 1}", "needs sizes"),
        ("[classes.image_short]\nweight = 1\nimages = {min = 3, max = 1}", "max 1 is under min 3"),
        ("[classes.image_short]\nweight = 1\nsizes = [[0, 5]]", "at least 1 pixel"),
    ],
)
def test_mistakes_in_a_profile_are_named(text, told, tmp_path):
    """Unknown keys get the nearest name; impossible values say why."""
    path = tmp_path / "mine.toml"
    classes = "" if "[classes" in text else "\n[classes.text_only]\nweight = 1\n"
    path.write_text(f'name = "mine"\n{text}\n{classes}', encoding="utf-8")

    with pytest.raises(UsageFault, match=r"mine\.toml") as caught:
        load_profile(str(path))

    assert told in caught.value.message


def test_an_unknown_profile_lists_the_built_in_ones():
    """A typing error shows what there is."""
    with pytest.raises(UsageFault, match="smoke"):
        load_profile("smok")


def test_no_class_means_no_profile():
    """A mix of nothing is refused."""
    with pytest.raises(ValueError, match="classes"):
        Profile.model_validate({"name": "x"})
