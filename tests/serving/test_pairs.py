"""Which pairs may serve."""

import pytest

from serving.instances import Want
from serving.pairs import PairBook
from serving.service import EngineEndpoint
from serving.standing import (
    BLACKLIST_FIRST_S,
    BUSY_LONGEST_S,
    FAILURES_IN_A_ROW,
    OUT_LEAST_S,
    OUT_LONGEST_S,
    blacklisted_s,
)
from toolkit.core.errors import EngineUnavailable


def engine(name):
    role = name.split("-")[0]
    return EngineEndpoint(name=name, role=role, url="http://127.0.0.1:1")


@pytest.fixture
def book():
    return PairBook([engine("prefill-0")], [engine("decode-0"), engine("decode-1")])


def bring_up(book, *names):
    for name in names:
        book.engine_seen(name, up=True)
    for pair in book.unproven():
        book.proven(pair)


def test_nothing_serves_before_an_image_went_through(book):
    """Up is not enough: the KV transfer must have worked."""
    for name in book.engines:
        book.engine_seen(name, up=True)

    assert not book.ready
    assert len(book.unproven()) == 2
    with pytest.raises(EngineUnavailable, match="engines up: decode-0, decode-1, prefill-0"):
        book.take(0.0)


def test_load_spreads_over_decodes(book):
    """The decode with the fewest requests is next."""
    bring_up(book, "prefill-0", "decode-0", "decode-1")

    taken = [book.take(0.0).pair.decode.name for _ in range(4)]

    assert sorted(taken) == ["decode-0", "decode-0", "decode-1", "decode-1"]


def test_a_dead_decode_leaves_the_other_serving(book):
    """Losing one decode loses only its own requests."""
    bring_up(book, "prefill-0", "decode-0", "decode-1")
    book.engine_seen("decode-0", up=False)

    assert {book.take(0.0).pair.decode.name for _ in range(3)} == {"decode-1"}


def test_an_engine_that_came_back_proves_its_pairs_again(book):
    """It may be a new process whose transfer does not work."""
    bring_up(book, "prefill-0", "decode-0", "decode-1")
    book.engine_seen("decode-0", up=False)
    book.engine_seen("decode-0", up=True)

    assert [pair.name for pair in book.unproven()] == ["prefill-0+decode-0"]


def test_failures_in_a_row_make_a_pair_suspect_and_the_probe_decides(book):
    """It goes on serving while it is probed: a client's poison requests must not take it from everybody else."""
    bring_up(book, "prefill-0", "decode-0")
    pair = book.take(0.0).pair
    for _ in range(FAILURES_IN_A_ROW - 1):
        book.failed(pair)
    book.moved(pair)
    for _ in range(FAILURES_IN_A_ROW - 1):
        book.failed(pair)
    assert book.unproven() == []

    book.failed(pair)
    assert book.ready
    assert book.unproven() == [pair]

    book.proven(pair)
    assert book.unproven() == []
    book.disproved(pair)
    assert not book.ready


def test_every_pair_taken_is_given_back_once(book):
    """check() is what a test's teardown asks."""
    bring_up(book, "prefill-0", "decode-0")
    pair = book.take(0.0)

    with pytest.raises(AssertionError):
        book.check()
    book.give_back(pair)
    book.check()
    with pytest.raises(AssertionError):
        book.give_back(pair)


def take(book, now=0.0, avoid=()):
    """Which decode the next request would get."""
    taken = book.take(now, avoid)
    book.give_back(taken)
    return taken.pair.decode.name


def test_a_retry_goes_away_from_the_pairs_that_failed_it(book):
    """Where another is in rotation, however loaded it is."""
    bring_up(book, "prefill-0", "decode-0", "decode-1")
    loaded = [book.take(0.0, avoid=[pair]).pair for pair in [book.take(0.0).pair] for _ in range(3)]

    assert {pair.decode.name for pair in loaded} == {"decode-1"}
    assert book.take(0.0, avoid=[book.take(0.0).pair]).pair.decode.name == "decode-1"
    assert book.has_other([loaded[0]]) and not book.has_other([state.pair for state in book.pairs.values()])


def test_a_pair_whose_transfer_failed_serves_only_where_nothing_better_does(book):
    """SGLang may have blacklisted the session: others come first until a probe went through."""
    bring_up(book, "prefill-0", "decode-0", "decode-1")
    failed = next(state.pair for state in book.pairs.values() if state.pair.decode.name == "decode-0")
    book.transfer_failed(failed, now=5.0)

    assert {take(book, 5.0) for _ in range(3)} == {"decode-1"}
    assert book.unproven() == [failed]
    book.engine_seen("decode-1", up=False)
    assert take(book, 6.0) == "decode-0"
    book.proven(failed)
    bring_up(book, "decode-1")
    assert take(book, 7.0) == "decode-0" and book.unproven() == []


def test_the_only_pair_blacklisted_is_told_with_the_time_its_engine_needs(book):
    """SGLang looks again after 30 s, then after twice as long each time."""
    bring_up(book, "prefill-0", "decode-0")
    pair = book.take(5.0).pair
    book.transfer_failed(pair, now=5.0)
    book.disproved(pair)
    book.transfer_failed(pair, now=9.0)

    with pytest.raises(EngineUnavailable) as refused:
        book.take(15.0)

    assert refused.value.retry_after_s == OUT_LEAST_S + BLACKLIST_FIRST_S - 10
    assert [blacklisted_s(since) for since in (0, 29, 30, 89, 90, 209, 210)] == [30, 1, 60, 1, 120, 1, 240]


def test_an_outage_of_unknown_length_is_expected_to_last_as_long_again(book):
    """Not always 2 s, which would bring everybody back in vain; within bounds."""
    bring_up(book, "prefill-0", "decode-0")
    book.give_back(book.take(100.0))
    book.engine_seen("decode-0", up=False)

    assert [book.retry_after_s(now) for now in (100.5, 110.0, 500.0)] == [OUT_LEAST_S, 10.0, OUT_LONGEST_S]


def test_backpressure_sends_others_first_and_takes_no_pair_out(book):
    """429 and 503 are no fault: the only pair goes on serving; of two the other comes first, for longer each time."""
    bring_up(book, "prefill-0", "decode-0", "decode-1")
    taken = book.take(0.0)
    book.give_back(taken)
    busy = taken.pair
    held, now = [], 0.0
    for _ in range(6):
        book.busy(busy, now)
        assert book.unproven() == []
        begun = now
        while take(book, now) != busy.decode.name:
            now += 0.5
        held.append(now - begun)

    assert held == [1, 2, 4, 8, 8, 8] and held[-1] == BUSY_LONGEST_S
    book.moved(busy)
    book.busy(busy, now)
    assert take(book, now + 1.0) == busy.decode.name
    book.engine_seen("decode-1", up=False)
    assert take(book, now) == busy.decode.name


def test_silence_is_laid_on_the_engine_that_nothing_else_comes_out_of():
    """A frozen prefill makes all its pairs suspect, and none of a decode that goes on answering."""
    book = PairBook([engine("prefill-0"), engine("prefill-1")], [engine("decode-0"), engine("decode-1")])
    bring_up(book, *book.engines)
    silent, moving = book.pairs["prefill-0", "decode-0"].pair, book.pairs["prefill-1", "decode-0"].pair
    before = book.moves(silent)
    book.handed_over(moving)
    book.moved(moving)

    assert book.quiet(silent, before, prefilled=False)
    book.silent(silent, before, prefilled=False)

    assert {pair.prefill.name for pair in book.unproven()} == {"prefill-0"}
    assert len(book.unproven()) == 2


def test_a_pair_that_others_get_answers_from_is_slow_and_not_quiet(book):
    """Of the asking attempt's own progress nothing is made."""
    bring_up(book, "prefill-0", "decode-0")
    taken = book.take(0.0)
    before = book.moves(taken.pair)
    book.prefilled(taken)

    assert book.quiet(taken.pair, before, prefilled=True)
    assert not book.quiet(taken.pair, before, prefilled=False)
    book.give_back(taken)


def test_the_load_is_tokens_and_not_requests(book):
    """Beside one request of 10,000 tokens, the other decode takes ten of 500."""
    bring_up(book, *book.engines)
    large = book.take(0.0, want=Want(8_000, 2_000)).pair.decode.name

    others = [book.take(0.0, want=Want(400, 100)).pair.decode.name for _ in range(10)]

    assert large not in others


def test_a_prompt_weighs_on_its_prefill_until_it_is_prefilled():
    """After that on its decode alone."""
    book = PairBook([engine("prefill-0"), engine("prefill-1")], [engine("decode-0")])
    bring_up(book, *book.engines)
    large = book.take(0.0, want=Want(8_000, 100))
    others = [book.take(0.0, want=Want(100, 100)) for _ in range(3)]
    assert {taken.pair.prefill.name for taken in others} == {"prefill-1"}

    book.prefilled(large)
    assert book.take(0.0, want=Want(100, 100)).pair.prefill.name == "prefill-0"
    assert book.instances["decode-0"].tokens == 8_100 + 4 * 200


def test_a_weight_is_a_share_of_the_tokens(book):
    """Three to one, within one request."""
    bring_up(book, *book.engines)
    book.weigh("decode-1", 3.0)

    taken = [book.take(0.0, want=Want(100)).pair.decode.name for _ in range(40)]

    assert taken.count("decode-1") == 30
    with pytest.raises(ValueError, match="drain it"):
        book.weigh("decode-1", 0.0)


def test_a_drained_instance_gets_nothing_new_and_what_it_has_ends(book):
    """It stays proven and is looked at: undrained it serves at once."""
    bring_up(book, *book.engines)
    running = book.take(0.0, want=Want(100, 100))
    drained, other = running.pair.decode.name, book.take(0.0).pair.decode.name
    book.drain(drained)

    assert {take(book) for _ in range(3)} == {other}
    assert not book.has_other([state.pair for key, state in book.pairs.items() if other in key])
    book.transfer_failed(running.pair, 0.0)
    assert book.unproven() == [running.pair]
    book.proven(running.pair)
    book.prefilled(running)
    book.give_back(running)
    assert book.instances[drained].tokens == 0
    book.drain(other)
    assert not book.ready
    with pytest.raises(EngineUnavailable, match="drained: decode-0, decode-1"):
        book.take(0.0)
    book.undrain(drained)
    assert book.ready and take(book) == drained


def test_a_decode_that_was_chosen_elsewhere_is_the_one(book):
    """However loaded; where it does not serve there is no pair."""
    bring_up(book, *book.engines)

    assert {book.take(0.0, decodes={"decode-1"}).pair.decode.name for _ in range(3)} == {"decode-1"}
    book.drain("decode-1")
    with pytest.raises(EngineUnavailable):
        book.take(0.0, decodes={"decode-1"})
