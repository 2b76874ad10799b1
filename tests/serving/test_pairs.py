"""Which pairs may serve."""

import pytest

from serving.pairs import FAILURES_IN_A_ROW, PairBook
from serving.service import EngineEndpoint
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
        book.take()


def test_load_spreads_over_decodes(book):
    """The decode with the fewest requests is next."""
    bring_up(book, "prefill-0", "decode-0", "decode-1")

    taken = [book.take().decode.name for _ in range(4)]

    assert sorted(taken) == ["decode-0", "decode-0", "decode-1", "decode-1"]


def test_a_dead_decode_leaves_the_other_serving(book):
    """Losing one decode loses only its own requests."""
    bring_up(book, "prefill-0", "decode-0", "decode-1")
    book.engine_seen("decode-0", up=False)

    assert {book.take().decode.name for _ in range(3)} == {"decode-1"}


def test_an_engine_that_came_back_proves_its_pairs_again(book):
    """It may be a new process whose transfer does not work."""
    bring_up(book, "prefill-0", "decode-0", "decode-1")
    book.engine_seen("decode-0", up=False)
    book.engine_seen("decode-0", up=True)

    assert [pair.name for pair in book.unproven()] == ["prefill-0+decode-0"]


def test_failures_in_a_row_make_a_pair_suspect_and_the_probe_decides(book):
    """It goes on serving while it is probed: a client's poison requests must not take it from everybody else."""
    bring_up(book, "prefill-0", "decode-0")
    pair = book.take()
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
    pair = book.take()

    with pytest.raises(AssertionError):
        book.check()
    book.give_back(pair)
    book.check()
    with pytest.raises(AssertionError):
        book.give_back(pair)
