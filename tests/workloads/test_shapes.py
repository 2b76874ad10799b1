"""Arrivals, phases, traces, sessions and closed loops, from the profile to the plan."""

from itertools import pairwise
from pathlib import Path

import pytest

from toolkit.core.errors import UsageFault
from toolkit.core.plan import Plan
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.arrivals import gap_cv
from workloads.compose import compose, reply_to
from workloads.prepare import prepare
from workloads.profile import Profile, load_profile, to_toml
from workloads.sessions import assign_turns
from workloads.shape import Phase, Sessions, scaled, stretches
from workloads.texts import BLOCK_TOKENS, CHARACTERS_PER_TOKEN

TEXT = "\n[classes.text_only]\nweight = 1\n"


@pytest.fixture
def profile_of(tmp_path):
    def load(text: str, overrides: dict | None = None) -> Profile:
        path = tmp_path / "mine.toml"
        path.write_text('name = "mine"\n' + text, encoding="utf-8")
        return load_profile(str(path), overrides)

    return load


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ('arrival = "constant"', 0.0, 0.001),
        ('arrival = "gamma"\npattern = { cv = 3.0 }', 2.2, 3.8),
        ('arrival = "on_off"\npattern = { on_s = 1.0, off_s = 4.0 }', 1.5, 6.0),
        ('arrival = "mmpp"\npattern = { states = [[0.2, 8.0], [4.2, 2.0]] }', 1.2, 6.0),
    ],
)
def test_the_profile_names_the_arrivals(text, least, most, profile_of):
    """Each way to arrive, with its parameters, reaches the plan."""
    plan = compose(profile_of(text + "\nrate = 10.0\nduration_s = 60.0" + TEXT))

    assert least <= gap_cv([request.at_s for request in plan.requests]) <= most


def test_phases_cut_and_scale():
    """A shorter window cuts the phases off; a time scale shortens each; the rates stay."""
    phases = (Phase(duration_s=600, share_of_peak=0.8), Phase(duration_s=300, rate=7.0))

    assert [s.rate for s in stretches(phases, 10.0, 900.0)] == [8.0, 7.0]
    assert [(s.begin_s, s.end_s) for s in stretches(phases, 10.0, 700.0)] == [(0, 600), (600, 700)]
    assert [s.end_s for s in stretches(phases, 10.0, 600.0)] == [600]
    assert [phase.duration_s for phase in scaled(phases, 0.1)] == [60, 30]
    assert [(s.end_s, s.rate) for s in stretches((), 3.0, 9.0)] == [(9.0, 3.0)]


def test_a_closed_loop_has_no_times(profile_of):
    """As many requests as were asked for, a concurrency instead of a schedule."""
    plan = compose(profile_of('arrival = "closed"\nclosed = { concurrency = 8, requests = 30 }' + TEXT))

    assert (plan.concurrency, len(plan.requests)) == (8, 30)
    assert {request.at_s for request in plan.requests} == {0.0}


def test_a_trace_is_repeated(profile_of):
    """Times, lengths and count of the recording; twice as fast, every gap is half."""
    text = (
        'arrival = "trace"\nduration_s = 100.0\ntrace = { file = "azure-2023-conversation", speed = 2.0 }'
        + TEXT
    )
    requests = compose(profile_of(text)).requests

    assert requests[1].at_s == pytest.approx(4.314579 / 2)
    assert requests[0].max_tokens == 44
    assert 374 - 32 <= len(requests[0].text) / CHARACTERS_PER_TOKEN <= 374
    assert all(a.at_s <= b.at_s < 100 for a, b in pairwise(requests))


def test_times_alone_can_be_repeated(profile_of):
    """lengths = false: the recording's pace, the profile's own mix."""
    text = (
        'arrival = "trace"\nduration_s = 50.0\ntrace = { file = "azure-2023-conversation", lengths = false }'
    )
    both = [
        compose(profile_of(text.replace("lengths = false", x) + TEXT))
        for x in ("lengths = false", "speed = 1.0")
    ]

    assert [r.at_s for r in both[0].requests] == [r.at_s for r in both[1].requests]
    assert max(r.max_tokens for r in both[0].requests) <= 32


def test_prompts_share_prefixes_as_the_trace_does(profile_of):
    """Blocks of one id are the same text: the two requests that begin with block 0 begin alike, then part."""
    text = 'arrival = "trace"\nduration_s = 3.1\ntrace = { file = "mooncake-conversation" }' + TEXT
    first, second = (request.text for request in compose(profile_of(text)).requests[:2])
    block = BLOCK_TOKENS * CHARACTERS_PER_TOKEN

    assert len(first) == 6758 * CHARACTERS_PER_TOKEN
    assert first[:block] == second[:block]
    assert first[block : 2 * block] != second[block : 2 * block]


def recorded(folder: Path) -> Path:
    """A trace of every class that a trace can have."""
    trace = folder / "lmm.csv"
    trace.write_text(
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
        "2024-10-15T12:00:00Z,0,100,10\n"
        "2024-10-15T12:00:01Z,1,949,126\n"
        "2024-10-15T12:00:02Z,1,9000,126\n"
        "2024-10-15T12:00:03Z,3,4564,137\n"
    )
    return trace


def test_a_trace_with_images_takes_their_sizes_from_the_classes(profile_of, tmp_path):
    """Counts and lengths from the trace, the class by the rule, sizes and promises from the class."""
    trace = recorded(tmp_path)
    text = f'arrival = "trace"\ntrace = {{ file = "{trace}" }}\nclasses.text_only = {{ weight = 1 }}\n'
    sizes = "sizes = [[640, 480]]"
    text += f"[classes.image_short]\nweight = 1\n{sizes}\n"
    with pytest.raises(UsageFault, match=r"requests of multi_image_long: add \[classes.multi_image_long\]"):
        compose(profile_of(text))
    plan = compose(
        profile_of(text + f'[classes.multi_image_long]\nweight = 1\nslo_class = "batch"\n{sizes}\n')
    )

    assert [r.workload_class.value for r in plan.requests] == [
        "text_only", "image_short", "multi_image_long", "multi_image_long",
    ]  # fmt: skip
    assert [len(r.images) for r in plan.requests] == [0, 1, 1, 3]
    assert plan.requests[3].slo_class is SloClass.BATCH


def test_a_trace_by_name_needs_no_more(profile_of):
    """Its name alone is the table, and it tells the shares of the classes: no weight is asked."""
    text = 'arrival = "trace"\nduration_s = 30.0\ntrace = "azure-2023-code"\n[classes.text_only]\n'

    profile = profile_of(text)

    assert profile.trace is not None
    assert profile.trace.file == "azure-2023-code"
    assert compose(profile).requests


def test_all_classes_that_a_trace_needs_are_told_at_once(profile_of, tmp_path):
    """One message, ready to be written down, instead of one run for each; a class that is there is not named."""
    text = f'arrival = "trace"\ntrace = "{recorded(tmp_path)}"\n[classes.text_only]\n'

    with pytest.raises(
        UsageFault,
        match=r"image_short, multi_image_long: add \[classes.image_short\], \[classes.multi_image_long\]",
    ):
        compose(profile_of(text))


def test_weights_are_asked_where_they_are_used(profile_of):
    """A drawn mix without one would be a guess; all that lack it are named."""
    image = "[classes.image_short]\nimages = { min = 1, max = 1 }\nsizes = [[64, 48]]\n"

    with pytest.raises(UsageFault, match=r"missing: classes.text_only.weight, classes.image_short.weight"):
        profile_of("[classes.text_only]\n" + image)


def test_turns_move_no_arrival():
    """Each conversation's turns count up, in one class, at least a gap apart; every arrival has its place."""
    times = [k * 1.0 for k in range(200)]
    classes = [(WorkloadClass.TEXT_ONLY, WorkloadClass.IMAGE_SHORT)[k % 3 == 0] for k in range(200)]
    import numpy as np

    turns = assign_turns(times, classes, Sessions(share=0.8, gap_s=5.0), np.random.default_rng(1))
    by_conversation: dict[str, list[int]] = {}
    for index, (conversation, turn) in enumerate(turns):
        if conversation:
            assert turn == len(by_conversation.setdefault(conversation, []))
            by_conversation[conversation].append(index)

    assert len(turns) == 200
    assert 20 <= sum(not conversation for conversation, _ in turns) <= 60
    assert max(map(len, by_conversation.values())) > 1
    for members in by_conversation.values():
        assert len({classes[index] for index in members}) == 1
        assert all(times[b] - times[a] >= 5.0 for a, b in pairwise(members))


def test_a_conversation_grows(profile_of):
    """A later turn sends everything said before it, and its class is that of the whole."""
    import orjson

    text = (
        "rate = 4.0\nduration_s = 30.0\nsessions = { gap_s = 1.0, turns = { min = 6, max = 6 } }\n"
        "[classes.image_short]\nweight = 1\nimages = { min = 1, max = 1 }\nsizes = [[64, 64]]\n"
        "text_tokens = { min = 200, max = 300 }\nmax_tokens = { min = 100, max = 150 }\n"
    )
    plan = compose(profile_of(text))
    bodies = [orjson.loads(p.body) for p in prepare(plan, "m", {}, 10**9)]
    last = max(plan.requests, key=lambda request: request.turn)
    turns = [r for r in plan.requests if r.conversation == last.conversation]
    messages = bodies[last.index]["messages"]

    assert last.turn == 5
    assert [m["role"] for m in messages] == ["user", "assistant"] * 5 + ["user"]
    assert [m["content"] for m in messages[:-1:2]] == [r.text for r in turns[:-1]]
    assert messages[1]["content"] == reply_to(turns[0], plan.seed)
    assert last.workload_class is WorkloadClass.MULTI_IMAGE_LONG
    assert turns[0].workload_class is WorkloadClass.IMAGE_SHORT
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('arrival = "trace"', r"\[trace\] go together"),
        ("closed = { concurrency = 1, requests = 1 }", r"\[closed\] go together"),
        ('arrival = "closed"\nclosed = { concurrency = 0, requests = 1 }', "concurrency"),
        ('arrival = "closed"\nclosed = { concurrency = 1, requests = 9 }\nphases = [{ duration_s = 1, rate = 1 }]', "no phases"),
        ('arrival = "closed"\nclosed = { concurrency = 1, requests = 9 }\nsessions = {}', "arrival times"),
        ("phases = [{ duration_s = 1 }]", "either a rate or a share_of_peak"),
        ("phases = [{ duration_s = 1, rate = 1, share_of_peak = 1 }]", "either"),
        ("phases = [{ rate = 1 }]", "duration_s"),
        ("phases = 3", "phases"),
        ("duration_s = 9\nphases = [{ duration_s = 1, rate = 1 }]", "less than duration_s"),
        ("pattern = { states = [[2.0, 1.0], [2.0, 1.0]] }", "divide each by 2"),
        ("pattern = { states = [[1.0, 1.0]] }", "two or more"),
        ("pattern = { cv = 0 }", "cv"),
        ("image_server = { slow_share = 0.6, huge_share = 0.6 }", "pass 1"),
        ('classes.image_short = { weight = 1, lengths = "clients" }', r"\[clients\]"),
        ("classes.image_short = { weight = 1, photo_share = 0.6, page_share = 0.6 }", "pass 1"),
        ('classes_from = "nothing"', "not built in"),
    ],
)  # fmt: skip
def test_mistakes_in_a_shape_are_named(text, told, profile_of):
    """Parts that need each other, shares that pass 1, factors that would change the rate."""
    with pytest.raises(UsageFault, match=told):
        profile_of(text + TEXT)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[classes.text_only]\nweight = 1\nimages = { min = 1, max = 1 }\nsizes = [[9, 9]]", "image_short by the rule"),
        ("[classes.high_res]\nweight = 1\nimages = { min = 1, max = 1 }\nsizes = [[9, 9]]", "image_short by the rule"),
        ('clients = {window_s = 1.0}\n[classes.text_only]\nweight = 1\nlengths = "clients"', "no client asks"),
        ('[clients]\n[classes.high_res]\nweight = 1\nlengths = "clients"', "give sizes or a folder"),
    ],
)  # fmt: skip
def test_a_class_that_is_none_is_refused(text, told, profile_of):
    """A mix cannot call its requests what the rule does not."""
    with pytest.raises(UsageFault, match=told):
        compose(profile_of(text))


def test_a_profile_cannot_lend_to_itself(tmp_path):
    """Two profiles that take their classes from each other are told, not followed."""
    one, other = tmp_path / "a.toml", tmp_path / "b.toml"
    one.write_text(f'name = "a"\nclasses_from = "{other}"\n')
    other.write_text(f'name = "b"\nclasses_from = "{one}"\n')

    with pytest.raises(UsageFault, match="from itself"):
        load_profile(str(one))


def test_a_runs_folder_is_its_plan_again(profile_of, tmp_path):
    """The recorded plan comes back to the byte, whatever the profile would draw; what it has fixed cannot be changed."""
    profile = profile_of('rate = 5.0\nduration_s = 4.0\norigin = "url"' + TEXT)
    recorded = compose(profile)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan.json").write_bytes(recorded.to_json())
    (tmp_path / "run" / "profile.toml").write_text(to_toml(profile).replace("seed = 1", "seed = 2"))

    again = load_profile(str(tmp_path / "run"))

    assert compose(again).to_json() == recorded.to_json()
    with pytest.raises(UsageFault, match="rate cannot be changed"):
        load_profile(str(tmp_path / "run"), {"rate": 9.0})
    (tmp_path / "run" / "plan.json").unlink()
    with pytest.raises(UsageFault, match=r"plan\.json"):
        compose(again)
