"""A plan is data: it survives its file, and what is no plan is refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.core.errors import UsageFault
from toolkit.core.plan import ImageRecipe, Plan, PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass

RECIPES = st.builds(
    ImageRecipe,
    source=st.sampled_from(["natural", "china", "flower", "page", "file"]),
    width=st.integers(1, 9000),
    height=st.integers(1, 9000),
    seed=st.integers(0, 2**63 - 1),
    file=st.text(max_size=9),
    delivery=st.sampled_from(["ok", "slow", "broken", "huge"]),
)
REQUESTS = st.builds(
    PlannedRequest,
    index=st.integers(0, 10**6),
    at_s=st.floats(0, 1e6),
    workload_class=st.sampled_from(WorkloadClass),
    slo_class=st.sampled_from(SloClass),
    text=st.text(max_size=40),
    images=st.lists(RECIPES, max_size=3).map(tuple),
    max_tokens=st.integers(1, 4096),
    stream=st.booleans(),
    conversation=st.text(max_size=4),
    turn=st.integers(0, 9),
)
PLANS = st.builds(
    Plan,
    name=st.text(max_size=9),
    seed=st.integers(0, 2**32),
    duration_s=st.floats(0.1, 1e6),
    requests=st.lists(REQUESTS, max_size=4).map(tuple),
    concurrency=st.integers(0, 64),
    images_url=st.sampled_from(["", "http://127.0.0.1:8790"]),
)


@pytest.mark.slow
@settings(max_examples=20)
@given(PLANS)
def test_a_plan_survives_json_exactly(plan):
    """Every time and every draw comes back as it was, and the bytes are the same again."""
    again = Plan.from_json(plan.to_json())

    assert again == plan
    assert again.to_json() == plan.to_json()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"version": 99}',
        b'{"version": 1, "name": "x", "seed": 1, "duration_s": 1, "requests": [{}]}',
        b'{"version": 1, "name": "x", "seed": 1, "duration_s": 1}',
    ],
)
def test_what_is_no_plan_is_refused(data):
    """A wrong file is the user's mistake, told as one."""
    with pytest.raises(UsageFault, match="plan"):
        Plan.from_json(data)


def test_an_unknown_image_source_is_refused():
    """A plan from elsewhere cannot smuggle in a picture that nobody can draw."""
    request = PlannedRequest(
        0, 0.0, WorkloadClass.HIGH_RES, SloClass.BATCH, "x", (ImageRecipe("natural", 8, 8, 1),), 8
    )
    data = Plan("p", 1, 1.0, (request,)).to_json().replace(b'"natural"', b'"noise"')

    with pytest.raises(UsageFault, match="noise"):
        Plan.from_json(data)


def test_an_unknown_delivery_is_refused():
    """Nor a fault that no image server knows."""
    recipe = ImageRecipe("natural", 8, 8, 1, delivery="slow")
    request = PlannedRequest(0, 0.0, WorkloadClass.HIGH_RES, SloClass.BATCH, "x", (recipe,), 8)
    data = Plan("p", 1, 1.0, (request,)).to_json().replace(b'"slow"', b'"lost"')

    with pytest.raises(UsageFault, match="lost"):
        Plan.from_json(data)


def test_a_plan_without_the_newer_fields_is_read():
    """What an earlier version recorded repeats as it was: open loop, inline, each request alone."""
    request = PlannedRequest(0, 0.5, WorkloadClass.TEXT_ONLY, SloClass.BATCH, "x", (), 8)
    plan = Plan("p", 1, 1.0, (request,))
    tables = json.loads(plan.to_json())
    for newer in ("concurrency", "images_url"):
        del tables[newer]
    for newer in ("conversation", "turn"):
        del tables["requests"][0][newer]

    assert Plan.from_json(json.dumps(tables)) == plan
