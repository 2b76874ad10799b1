"""Memory that many take parts of: never more than there is, and never a standstill."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.access.room import Room
from serving.access.share import Share
from toolkit.core.errors import TooLarge


def test_what_fits_is_granted_and_what_does_not_waits() -> None:
    """The rest goes on as soon as somebody leaves."""
    share: Share[str] = Share(100, 0)
    assert share.ask("a", 60) == ["a"]
    assert share.ask("b", 50) == []
    assert (share.waiting, share.waiting_bytes, share.held_bytes) == (1, 50, 60)
    assert share.leave("a") == ["b"]
    assert share.of("b") == 50


def test_those_who_hold_parts_and_want_more_never_lock_each_other() -> None:
    """Both hold some, both want more than is left: the eldest draws on the reserve, ends, and the other goes on."""
    share: Share[str] = Share(100, 40)
    share.ask("a", 30)
    share.ask("b", 30)
    assert share.ask("b", 60) == []
    assert share.ask("a", 70) == ["a"]
    assert share.leave("a") == ["b"]
    share.check()


def test_nobody_is_overtaken() -> None:
    """Who asks for little waits behind who asked for much, or the large would starve."""
    share: Share[str] = Share(100, 0)
    share.ask("a", 80)
    assert share.ask("large", 90) == []
    assert share.ask("small", 5) == []
    assert share.leave("a") == ["large", "small"]


def test_who_wants_little_goes_by_who_wants_much() -> None:
    """Large ones wait for each other and leave a part free; the small ones go first, and in turn among themselves."""
    share: Share[str] = Share(100, 10, small_bytes=5, small_part_bytes=10)
    assert share.ask("large", 60) == ["large"]
    assert share.ask("larger", 30) == []
    assert [share.ask(name, 5) for name in ("s", "m", "a", "l", "l2", "l3")] == [
        ["s"],
        ["m"],
        ["a"],
        ["l"],
        ["l2"],
        ["l3"],
    ]
    assert share.ask("late", 5) == []
    share.check()
    assert share.leave("s") == ["late"]
    assert share.leave("large") == ["larger"]
    share.check()


def test_giving_back_a_part_lets_others_on() -> None:
    share: Share[str] = Share(100, 0)
    share.ask("a", 90)
    share.ask("b", 40)
    assert share.keep("a", 50) == ["b"]
    assert share.keep("a", 70) == []
    assert share.of("a") == 50


def test_more_than_all_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="101 of 100"):
        Share(100, 0).ask("a", 101)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_everybody_who_wants_no_more_than_the_reserve_ends(data: st.DataObject) -> None:
    """Any order of growing holders: bounds always hold, and with those who are granted going on, all end."""
    share: Share[int] = Share(100, 40)
    wants = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    held = dict.fromkeys(range(len(wants)), 0)
    asking: set[int] = set()
    left = dict(enumerate(wants))
    for _ in range(10_000):
        if not left:
            break
        free = sorted(left.keys() - asking)
        assert free, "a standstill"
        key = data.draw(st.sampled_from(free))
        if held[key] == left[key]:
            del left[key]
            granted = share.leave(key)
        else:
            asking.add(key)
            held[key] += data.draw(st.integers(1, left[key] - held[key]))
            granted = share.ask(key, held[key])
        asking -= set(granted)
        share.check()
    assert not left
    assert share.held_bytes == 0


def test_room_is_given_back_on_every_way_out() -> None:
    """By an error, by a cancellation, and in part."""

    async def scenario() -> None:
        room = Room(1000)

        async def failing() -> None:
            async with room.hold() as held:
                await held.reach(10)
                await held.reach(500)
                assert room.share.held_bytes == held.bytes == 500
                raise RuntimeError

        with pytest.raises(RuntimeError):
            await failing()
        assert room.share.held_bytes == 0

        async def greedy() -> None:
            async with room.hold() as held:
                await held.reach(1000)

        async with room.hold() as first:
            await first.reach(1)
            waiter = asyncio.create_task(greedy())
            await asyncio.sleep(0)
            assert room.share.waiting == 1
            waiter.cancel()
            await asyncio.wait([waiter])
            assert room.share.waiting == 0
            first.keep(0)
        await greedy()
        room.share.check()

    asyncio.run(scenario())


def test_small_holders_never_wait() -> None:
    """What is free is not counted, so text goes by a queue of images."""

    async def scenario() -> None:
        room = Room(5000)
        async with room.hold() as large, room.hold(free_bytes=1000) as small:
            await large.reach(5000)
            await small.reach(1000)
            assert small.bytes == 0
            with pytest.raises(TooLarge, match=r"access\.memory_mb"):
                await small.reach(5001)

    asyncio.run(scenario())
