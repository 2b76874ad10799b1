"""What a prefill has cached comes back to it, within bounds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import chat
from serving.affinity import HEAD_BYTES, LEAST_TOKENS, Seen, chosen, key_of
from serving.instances import Instance
from serving.service import EngineEndpoint
from tests.serving.prefills import conversations, documents, images, run

BOUND = 1.25


def instance(number, weight=1.0, tokens=0):
    endpoint = EngineEndpoint(name=f"prefill-{number}", role="prefill", url="http://127.0.0.1:1")
    return Instance(endpoint, weight, tokens=tokens)


def places(instances, keys=range(400), tokens=1):
    """Where each key goes while nothing else is there."""
    return {key: chosen(str(key).encode(), instances, tokens, BOUND, True)[0].endpoint.name for key in keys}


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=8), st.data())
@settings(max_examples=20, deadline=None)
def test_an_instance_that_goes_takes_its_own_keys_along_and_moves_no_other(weights, data):
    """And one that comes takes from each other, and exchanges nothing among them."""
    instances = [instance(number, weight) for number, weight in enumerate(weights)]
    gone = data.draw(st.sampled_from(instances))
    before = places(instances, range(30))
    after = places([one for one in instances if one is not gone], range(30))

    assert all(after[key] == at for key, at in before.items() if at != gone.endpoint.name)


def test_keys_are_shared_out_by_weight():
    """Three to one, within the noise of 4,000 keys (five standard deviations)."""
    at = list(places([instance(0, 3.0), instance(1, 1.0)], range(4000)).values())

    assert abs(at.count("prefill-0") - 3000) < 137


loads = st.lists(st.tuples(st.floats(0.1, 10), st.integers(0, 100_000)), min_size=1, max_size=8).map(
    lambda all_: [instance(number, weight, tokens) for number, (weight, tokens) in enumerate(all_)]
)


@given(loads, st.binary(min_size=1, max_size=8), st.integers(0, 20_000), st.floats(1, 3), st.booleans())
@settings(max_examples=50, deadline=None)
def test_nobody_gets_more_for_its_cache_than_the_bound(instances, key, tokens, bound, seen):
    """Whoever is chosen was within the bound of the mean, and there always is one."""
    mean = sum(one.tokens for one in instances) / sum(one.weight for one in instances)
    best, first = chosen(key, instances, tokens, bound, seen)

    load = best.tokens / best.weight
    assert load <= (bound * (mean + tokens) if seen else mean) * (1 + 1e-9)
    home, _ = chosen(key, [Instance(one.endpoint, one.weight) for one in instances], 1, bound, True)
    assert first == (best.endpoint == home.endpoint)


def test_a_new_key_waits_behind_nobody_and_settles_where_it_will_be_looked_for():
    """The first request has nothing to gain; where there is a choice it goes where the second will."""
    seen = Seen(most=2)
    assert [seen.again(key) for key in (b"a", b"a", b"b", b"c", b"a")] == [False, True, False, False, False]

    empty = [instance(number) for number in range(4)]
    assert all(
        chosen(key, empty, 100, BOUND, True) == chosen(key, empty, 100, BOUND, False) for key in (b"a", b"b")
    )
    home = chosen(b"a", empty, 100, BOUND, True)[0]
    home.tokens = 150
    assert chosen(b"a", empty, 150, BOUND, True)[0] is home
    assert chosen(b"a", empty, 150, BOUND, False)[0] is not home


@pytest.mark.parametrize(
    ("asks", "gains"),
    [
        (images(1, 40, 25, 400), 0.15),
        (conversations(1, 25, 40), 0.12),
        (documents(1, 15, 40, 30), 0.4),
    ],
    ids=["images again", "conversations", "long beginnings"],
)
def test_affinity_raises_the_share_of_hits_within_the_bound(asks, gains):
    """Four prefills at the load of the case: more is cached, the mean wait is shorter, and no prefill is above the bound."""

    def within(book, name, tokens):
        all_ = [one for one in book.instances.values() if one.endpoint.role == "prefill"]
        mean = (sum(one.tokens for one in all_) - tokens) / len(all_)
        assert book.instances[name].tokens <= BOUND * (mean + tokens) + tokens

    load, affinity = run(asks, 4, None), run(asks, 4, BOUND, within)

    assert affinity.hit_share >= load.hit_share + gains
    assert sum(affinity.waits_s) < sum(load.waits_s)
    assert affinity.spread < 1.25


def test_what_comes_once_waits_no_longer_for_it():
    """Unique images at a load that leaves queues: where nothing can be gained, within a twentieth of load alone."""
    asks = images(1, 35, 20, 0)
    load, affinity = run(asks, 4, None), run(asks, 4, BOUND)

    assert affinity.by == {"new": len(asks)}
    assert affinity.wait_s(0.95) <= 1.05 * load.wait_s(0.95)


def test_with_one_prefill_nothing_is_hashed():
    """There is nothing to choose."""
    asks = documents(1, 5, 10, 3)

    assert run(asks, 1, BOUND).by == {"load": len(asks)}


def body(messages, **fields):
    return chat.parse(chat.dump({"model": "m", "messages": messages, **fields}))


def test_the_key_is_of_what_is_likely_to_be_cached():
    """The client's own word, else the first image, else the beginning of a long text; else there is none."""
    said = [{"role": "system", "content": "x" * HEAD_BYTES}, {"role": "user", "content": "one"}]
    other = [said[0], {"role": "user", "content": [{"type": "text", "text": "two"}]}]
    assert key_of(body(said), (), LEAST_TOKENS) == key_of(body(other), (), LEAST_TOKENS) is not None
    assert key_of(body(said), (), LEAST_TOKENS - 1) is None
    assert key_of(body([{"role": "user", "content": "x"}]), (), 900) != key_of(body(said), (), 900)
    assert key_of(body(said), (b"a", b"b"), 9) == key_of(body(other), (b"a", b"c"), 9)
    assert key_of(body(said), (b"b", b"a"), 9) != key_of(body(other), (b"a", b"b"), 9)
    named = key_of(body(said, prompt_cache_key="k"), (b"a",), 9)
    assert named == key_of(body(other, prompt_cache_key="k"), (), 9) != key_of(body(said), (b"a",), 9)


def test_turns_of_a_conversation_have_one_key():
    """Whatever is said later."""
    first = [{"role": "user", "content": "y" * 3000}]
    later = [*first, {"role": "assistant", "content": "z"}, {"role": "user", "content": "more"}]

    assert key_of(body(first), (), 1000) == key_of(body(later), (), 1200)
