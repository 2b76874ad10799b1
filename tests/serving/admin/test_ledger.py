"""Every change is known by who, when and what, and can be taken back."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.admin.ledger import Change, Ledger
from tests.serving.admin.settings import UP, configured
from toolkit.core.errors import Conflict, InvalidRequest, NotFound

LIMIT, WEIGHT, DRAINED = "schedule.max_in_flight", "batch.weight", "instance.decode-1.drained"
OTHER_DRAINED, BASE, CAP = "instance.decode-0.drained", "retry.base_s", "retry.cap_s"


class Book:
    """A ledger whose changes are recorded as they are proposed, one second apart."""

    def __init__(self):
        self.ledger = Ledger(configured())
        self.now = 0.0

    def set(self, up=UP, **options):
        values = options.pop("values")
        return self.note(
            self.ledger.propose(values, who="ann", reason="because", at=self.now, up=up, **options)
        )

    def undo(self, number, up=UP, force=False):
        return self.note(self.ledger.undo(number, who="bob", reason="", at=self.now, up=up, force=force))

    def note(self, change):
        if change is not None:
            self.ledger.record(change)
        self.now += 1.0
        return change

    def end(self, now=None):
        """All that ends by then, from the first on."""
        self.now = self.now if now is None else now
        while (change := self.ledger.expired(self.now, UP)) is not None:
            self.ledger.record(change)

    def again(self):
        """A ledger that is told the same changes from the disk."""
        ledger = Ledger(configured())
        for change in self.ledger.changes:
            ledger.record(Change.from_dict(json.loads(json.dumps(change.to_dict()))))
        return ledger

    def value(self, key):
        return self.ledger.present.values()[key]


def test_a_change_says_who_when_and_what_was_before():
    """What is needed to know why, and to take it back."""
    book = Book()

    change = book.set(values={LIMIT: 32, WEIGHT: 2.0})

    assert change == Change(
        1, 0.0, "ann", "set", "because", {LIMIT: 64, WEIGHT: 0.25}, {LIMIT: 32, WEIGHT: 2.0}
    )
    assert book.ledger.overridden() == {LIMIT: 64, WEIGHT: 0.25}
    assert Change.from_dict(change.to_dict()) == change


def test_what_is_so_already_is_no_change():
    """Asking twice leaves one line; a key that has its value is left out."""
    book = Book()
    book.set(values={LIMIT: 32})

    assert book.set(values={LIMIT: 32}) is None
    assert book.set(values={LIMIT: 32, WEIGHT: 2}).after == {WEIGHT: 2.0}


def test_undo_gives_the_values_before_and_can_be_undone():
    """Taking back is a change as any other."""
    book = Book()
    book.set(values={LIMIT: 32})

    undone = book.undo(1)
    assert (undone.kind, undone.of, undone.who, book.value(LIMIT)) == ("undo", 1, "bob", 64)

    book.undo(undone.id)
    assert book.value(LIMIT) == 32


def test_undo_of_what_somebody_changed_since_is_refused_unless_forced():
    """Nobody's later change is lost without a word."""
    book = Book()
    book.set(values={LIMIT: 32, WEIGHT: 2})
    book.set(values={LIMIT: 16})

    with pytest.raises(Conflict, match="is 16 now, not 32") as refused:
        book.undo(1)
    assert (refused.value.status, refused.value.param) == (409, LIMIT)
    assert book.value(LIMIT) == 16

    book.undo(1, force=True)
    assert (book.value(LIMIT), book.value(WEIGHT)) == (64, 0.25)


def test_undo_of_what_was_undone_says_by_which():
    """Values as serve.toml writes them."""
    book = Book()
    book.set(values={DRAINED: True})
    book.undo(1)

    with pytest.raises(Conflict, match=r"change 2 took it back\).*is false now, not true"):
        book.undo(1)


def test_undo_of_no_change_is_not_found():
    """404, not a crash."""
    with pytest.raises(NotFound):
        Book().undo(7)


def test_the_last_engine_of_a_role_is_drained_only_by_force():
    """An engine that is down does not count: draining the other would end all service."""
    book = Book()
    with pytest.raises(Conflict) as refused:
        book.set(values={DRAINED: True}, up=("prefill-0", "decode-1"))
    assert refused.value.code.code == "nothing_left_to_serve"

    book.set(values={DRAINED: True})
    with pytest.raises(Conflict):
        book.set(values={"instance.decode-0.drained": True})

    book.set(values={"instance.decode-0.drained": True}, force=True)
    book.set(values={WEIGHT: 2})  # where nothing is left already, other changes are free


@pytest.mark.parametrize(("fallback", "refused"), [("", True), ("images", False)])
def test_the_last_prefill_of_a_pool_is_drained_only_by_force(fallback, refused):
    """Its requests would be 503s while all looks well; unless its fallback takes them."""
    words = {"name": "words", "classes": ["text"], "prefills": ["prefill-0"], "fallback": fallback}
    images = {"name": "images", "classes": ["image"], "prefills": ["prefill-1"]}
    engines = ("prefill-0", "prefill-1", "decode-0")
    ledger = Ledger(configured(engines, pools=[words, images]))
    asked = {"instance.prefill-0.drained": True}

    def propose(force=False):
        return ledger.propose(asked, who="ann", reason="", at=0.0, up=engines, force=force)

    if refused:
        with pytest.raises(Conflict, match=r"pool 'words'.*prefill-0 was the last that is up"):
            propose()
    assert propose(force=refused) is not None


def test_a_change_for_a_while_ends_by_itself_and_leaves_what_others_set_since():
    """The end is a change too, by whoever made it."""
    book = Book()
    book.set(values={LIMIT: 32, WEIGHT: 2}, for_s=60)
    book.set(values={WEIGHT: 3})

    assert book.ledger.expired(59.0) is None
    ended = book.note(book.ledger.expired(60.0))

    assert (ended.kind, ended.of, ended.after) == ("expiry", 1, {LIMIT: 64})
    assert (book.value(LIMIT), book.value(WEIGHT)) == (64, 3.0)
    assert book.ledger.expired(1e9) is None
    assert book.ledger.ending == []


def test_asked_for_again_for_longer_it_ends_later_and_gives_back_what_was_before_the_first():
    """Nobody who asks for a minute more gets less; asking for less changes nothing."""
    book = Book()
    book.set(values={LIMIT: 32, WEIGHT: 2}, for_s=5)
    longer = book.set(values={LIMIT: 32}, for_s=60)

    assert (longer.before, longer.after, longer.until) == ({LIMIT: 64}, {LIMIT: 32}, 61.0)
    assert book.set(values={LIMIT: 32}, for_s=10) is None
    assert book.note(book.ledger.expired(5.0)).after == {WEIGHT: 0.25}
    assert (book.value(LIMIT), book.ledger.ends_at(LIMIT)) == (32, 61.0)
    assert book.note(book.ledger.expired(61.0)).after == {LIMIT: 64}
    assert (book.ledger.expired(1e9), book.ledger.ends_at(LIMIT)) == (None, None)


def test_asked_for_again_for_good_it_does_not_end():
    """A set without an end holds until it is undone, whatever was said before."""
    book = Book()
    book.set(values={LIMIT: 32}, for_s=5)
    book.set(values={LIMIT: 32})

    assert book.ledger.expired(1e9) is None
    assert book.ledger.ending == []
    book.undo(2)
    assert book.value(LIMIT) == 64


def test_a_change_for_a_while_ends_what_was_given_back_to_it_and_nothing_that_others_set():
    """Also where somebody else's value is the same as its own."""
    book = Book()
    book.set(values={LIMIT: 32}, for_s=60)
    book.set(values={LIMIT: 16})
    book.undo(2)
    assert book.ledger.ends_at(LIMIT) == 60.0

    book.set(values={LIMIT: 16})
    book.set(values={LIMIT: 32})
    assert book.ledger.expired(1e9) is None
    assert book.value(LIMIT) == 32

    book.undo(5)
    assert book.ledger.expired(1e9) is None
    book.undo(4)
    assert book.note(book.ledger.expired(1e9)).after == {LIMIT: 64}, (
        "what is given back too late ends at once"
    )


def test_a_change_that_was_undone_does_not_end_again():
    """Otherwise its end would fall on somebody else's like value."""
    book = Book()
    book.set(values={LIMIT: 32}, for_s=60)
    book.undo(1)
    book.set(values={LIMIT: 32})

    assert book.ledger.expired(100.0) is None
    assert book.value(LIMIT) == 32


def test_a_change_that_the_settings_no_longer_know_is_listed_and_does_nothing():
    """A record of another configuration stops no gateway, and its numbers are not given again."""
    book = Book()
    with pytest.raises(InvalidRequest):
        book.ledger.record(
            Change(
                4, 0.0, "ann", "set", "", {"instance.gone.drained": False}, {"instance.gone.drained": True}
            )
        )

    assert book.set(values={LIMIT: 3}).id == 5


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.sampled_from([LIMIT, "schedule.max_waiting", "retry.max_attempts"]), st.integers(1, 4)),
        max_size=12,
    )
)
def test_undoing_all_from_the_last_to_the_first_gives_what_was_configured(asked):
    """And a ledger that is told the same changes again is where this one is."""
    book = Book()
    made = [change.id for key, value in asked if (change := book.set(values={key: value})) is not None]
    again = Ledger(configured())
    for change in book.ledger.changes:
        again.record(change)
    assert again.present.values() == book.ledger.present.values()

    for number in reversed(made):
        book.undo(number)

    assert book.ledger.overridden() == {}


def test_changes_for_a_while_may_overlap_and_leave_nothing_behind():
    """Whichever ends first: what holds is the last one that has not ended."""
    book = Book()
    book.set(values={LIMIT: 32}, for_s=3)
    book.set(values={LIMIT: 16}, for_s=6)
    book.end(4.0)
    assert book.value(LIMIT) == 16
    book.end(10.0)
    assert (book.value(LIMIT), book.ledger.ending) == (64, [])

    book.set(values={LIMIT: 32}, for_s=60)
    book.set(values={LIMIT: 16}, for_s=3)
    book.end(20.0)
    assert (book.value(LIMIT), book.ledger.ends_at(LIMIT)) == (32, 70.0)


def test_what_an_undo_gives_back_keeps_its_end():
    """Also where it is the undo that is undone; after its time there is nothing to give back."""
    book = Book()
    book.set(values={LIMIT: 32}, for_s=60)
    book.undo(1)
    assert (book.undo(2).until, book.value(LIMIT), book.ledger.ends_at(LIMIT)) == (60.0, 32, 60.0)

    book.undo(3)
    book.now = 100.0
    assert book.undo(4).after == {LIMIT: 64}


def test_an_undone_expiry_holds_for_good():
    """Who takes back an end wants the value without one."""
    book = Book()
    book.set(values={LIMIT: 32}, for_s=3)
    book.end(5.0)
    book.undo(2)
    book.end(1e9)
    assert (book.value(LIMIT), book.ledger.ends_at(LIMIT)) == (32, None)


def test_undo_of_what_somebody_set_to_the_same_again_is_refused():
    """Their word stands, though it says the same."""
    book = Book()
    book.set(values={LIMIT: 32})
    book.set(values={LIMIT: 16})
    book.set(values={LIMIT: 32})

    with pytest.raises(Conflict, match="was set to 32 again since"):
        book.undo(1)


def test_what_cannot_end_holds_says_why_and_keeps_no_other_from_ending():
    """Its end would contradict what was set meanwhile; it comes as soon as that is gone."""
    book = Book()
    book.set(values={CAP: 5.0}, for_s=3)
    book.set(values={BASE: 2.0})
    book.set(values={LIMIT: 20}, for_s=3)

    book.end(10.0)
    assert (book.value(CAP), book.value(LIMIT)) == (5.0, 64)
    assert list(book.ledger.kept) == [1] and "cap_s" in book.ledger.kept[1]
    lines = len(book.ledger.changes)
    book.end(20.0)
    assert len(book.ledger.changes) == lines

    book.undo(2)
    book.end()
    assert (book.value(CAP), book.ledger.kept, book.ledger.ending) == (0.5, {}, [])


def test_an_end_does_not_drain_the_last_decode():
    """What a person is refused does not come with time either."""
    book = Book()
    book.set(values={OTHER_DRAINED: True})
    book.set(values={OTHER_DRAINED: False}, for_s=3)
    book.set(values={DRAINED: True})

    book.end(10.0)
    assert not book.value(OTHER_DRAINED) and "No decode engine would be left" in book.ledger.kept[2]

    book.set(values={DRAINED: False})
    book.end()
    assert book.value(OTHER_DRAINED) and book.ledger.kept == {}


VALUES = {
    LIMIT: [16, 32, 64],
    WEIGHT: [0.25, 2.0],
    BASE: [0.05, 2.0],
    CAP: [0.5, 5.0],
    DRAINED: [False, True],
    OTHER_DRAINED: [False, True],
}
ASKED = st.sampled_from([(key, value) for key, values in VALUES.items() for value in values])
STEPS = st.one_of(
    st.tuples(st.lists(ASKED, min_size=1, max_size=2).map(dict), st.sampled_from([None, None, 2.0, 5.0])),
    st.tuples(st.integers(1, 10), st.none()),
    st.just((None, None)),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=10))
def test_once_all_has_ended_only_what_was_set_for_good_is_left(steps):
    """Whatever was set, undone, ended or started again in between; and the file gives the same again."""
    book, lasting = Book(), Book()
    twins = {}
    for what, for_s in steps:
        try:
            if what is None:
                book.end()
                book.ledger = book.again()
                made = None
            else:
                made = book.undo(what) if isinstance(what, int) else book.set(values=what, for_s=for_s)
        except (Conflict, InvalidRequest, NotFound):
            continue
        if made is not None and for_s is None:
            twins[made.id] = _lasting(lasting, book.ledger, made, twins)

    book.end(1e9)
    again = book.again()
    assert again.expired(1e9, UP) is None
    assert (again.present, again.kept) == (book.ledger.present, book.ledger.kept)
    assert {change.id for change in book.ledger.ending} == set(book.ledger.kept)
    assert not (book.value(DRAINED) and book.value(OTHER_DRAINED))
    if not book.ledger.kept:
        assert [book.value(key) for key in (LIMIT, WEIGHT)] == [lasting.value(key) for key in (LIMIT, WEIGHT)]


def _lasting(lasting, ledger, made, twins):
    """The number of the same change where nothing is made for a while; None where it changes nothing there."""
    undone = made.of and ledger.find(made.of)
    if undone and undone.kind != "expiry":
        twin = twins.get(undone.id)
        return None if twin is None else lasting.undo(twin, force=True).id
    values = {key: made.after[key] for key in (LIMIT, WEIGHT) if key in made.after}
    twin = lasting.set(values=values) if values else None
    return twin and twin.id
