"""What waits for the store is bounded, goes out first in first out, and is held back while the store fails."""

import random

from hypothesis import given
from hypothesis import strategies as st

from serving.storage.backlog import (
    FIRST_S,
    LATELY_ENTRIES,
    LATELY_S,
    LONGEST_S,
    MEMORY_BYTES,
    Backlog,
)
from serving.storage.entries import Entry, entry, image_name, result_name

MB = 1_000_000


def image(number: int, size: int = 1000) -> Entry:
    found = entry(image_name(number.to_bytes(32, "big"), "jpeg"), size)
    assert found is not None
    return found


def backlog(max_bytes: int = 100 * MB, concurrency: int = 2) -> Backlog:
    return Backlog(max_bytes, concurrency, random.Random(1))


def spooled(made: Backlog, *entries: Entry) -> Backlog:
    for one in entries:
        assert made.offer(one.name, one.size, 0) == "taken"
        made.written(one, 0)
    return made


def test_entries_go_out_in_the_order_they_came_as_many_at_once_as_allowed() -> None:
    made = spooled(backlog(), image(1), image(2), image(3))

    first, second, third = made.next(0), made.next(0), made.next(0)

    assert (first, second, third) == (image(1), image(2), None)
    made.done(image(1), 1)
    assert made.next(1) == image(3)


def test_only_what_is_whole_on_the_disk_goes_out() -> None:
    made = backlog()
    made.offer(image(1).name, 1000, 0)

    assert made.next(0) is None
    made.unwritten(image(1).name)
    assert (made.entries, made.bytes) == (0, 0)


def test_a_full_spool_takes_nothing_more_and_loses_nothing_it_has() -> None:
    made = spooled(backlog(max_bytes=2500), image(1), image(2))

    assert made.offer(image(3).name, 1000, 0) == "spool_full"
    assert made.bytes == 2000
    made.done(made.next(0) or image(9), 0)
    assert made.offer(image(3).name, 1000, 0) == "taken"


def test_memory_is_bounded_while_the_disk_is_slow_and_one_large_file_still_passes() -> None:
    made = backlog(max_bytes=1000 * MB)

    assert made.offer(image(1).name, MEMORY_BYTES + 5, 0) == "taken"
    assert made.offer(image(2).name, 1, 0) == "disk_behind"


def test_what_is_uploaded_at_once_is_bounded_in_bytes_too() -> None:
    made = spooled(backlog(1000 * MB, concurrency=9), image(1, MEMORY_BYTES - 10), image(2, 10), image(3, 10))

    assert [made.next(0), made.next(0), made.next(0)] == [image(1, MEMORY_BYTES - 10), image(2, 10), None]


def test_an_image_is_known_while_it_waits_and_a_while_after_it_was_stored() -> None:
    made = spooled(backlog(), image(1))

    assert made.offer(image(1).name, 1000, 0) == "known"
    made.done(made.next(0) or image(9), 10)
    assert made.offer(image(1).name, 1000, 10 + LATELY_S - 1) == "known"
    assert made.offer(image(1).name, 1000, 10 + LATELY_S) == "taken"


def test_of_how_many_images_it_is_known_is_bounded() -> None:
    made = backlog(concurrency=1)
    for number in range(LATELY_ENTRIES + 1):
        spooled(made, image(number))
        made.done(made.next(0) or image(9), 0)

    assert made.offer(image(0).name, 1000, 1) == "taken"
    assert made.offer(image(1).name, 1000, 1) == "known"


def test_while_the_store_fails_one_entry_alone_tries_at_growing_intervals_and_success_opens_all() -> None:
    made = spooled(backlog(), image(1), image(2), image(3))
    now, waits = 0.0, []
    for one in (made.next(0), made.next(0)):
        assert one is not None
        made.failed(one, now)
    for _ in range(12):
        wait_s = made.wait_s(now)
        assert wait_s is not None
        assert made.next(now + wait_s / 2) is None
        now += wait_s
        one = made.next(now)
        assert one is not None
        assert made.next(now) is None
        made.failed(one, now)
        waits.append(wait_s)

    assert FIRST_S / 2 <= waits[0] <= FIRST_S  # both failures were one outage
    assert waits[0] < waits[2] < waits[4]
    assert LONGEST_S / 2 <= waits[-1] <= LONGEST_S
    now += made.wait_s(now) or 0
    made.done(made.next(now) or image(9), now)
    assert None not in (made.next(now), made.next(now))


def test_an_entry_that_always_fails_stops_nobody() -> None:
    bad, good = image(0), [image(number) for number in range(1, 6)]
    made, now, stored = spooled(backlog(concurrency=1), bad, *good), 0.0, []
    while len(stored) < len(good):
        now += made.wait_s(now) or 0
        one = made.next(now)
        assert one is not None
        if one == bad:
            made.failed(one, now)
        else:
            made.done(one, now)
            stored.append(one)

    assert stored == good
    assert now < 2 * FIRST_S


def test_at_a_stop_what_failed_is_tried_again_at_once() -> None:
    made = spooled(backlog(), image(1))
    made.failed(made.next(0) or image(9), 0)

    made.hurry()

    assert made.next(0) == image(1)


def test_the_age_is_the_oldest_entrys() -> None:
    made = backlog()
    assert made.oldest_s(1000) == 0
    made.written(image(1), 900)
    made.written(image(2), 950)
    made.failed(made.next(0) or image(9), 0)

    assert made.oldest_s(1000) == 100


@given(
    st.lists(
        st.tuples(st.sampled_from(["offer", "write", "lose", "next", "done", "fail"]), st.integers(0, 9))
    )
)
def test_whatever_happens_bytes_and_entries_are_those_accepted_and_not_stored(
    steps: list[tuple[str, int]],
) -> None:
    made, now = backlog(max_bytes=20_000, concurrency=3), 0.0
    writing: dict[str, Entry] = {}
    uploading: list[Entry] = []
    held: dict[str, Entry] = {}
    for step, number in steps:
        now += 100
        one = image(number, 1000 * number)
        if step == "offer" and made.offer(one.name, one.size, now) == "taken":
            writing[one.name] = held[one.name] = one
        elif step == "write" and writing:
            made.written(writing.popitem()[1], now)
        elif step == "lose" and writing:
            name, _ = writing.popitem()
            made.unwritten(name)
            del held[name]
        elif step == "next" and (found := made.next(now)) is not None:
            uploading.append(found)
        elif step == "done" and uploading:
            found = uploading.pop(0)
            made.done(found, now)
            del held[found.name]
        elif step == "fail" and uploading:
            made.failed(uploading.pop(0), now)

        assert made.entries == len(held)
        assert made.bytes == sum(one.size for one in held.values()) <= 20_000
        assert made.uploading == len(uploading) <= 3


def test_names_keys_and_content_types_follow_from_each_other() -> None:
    digest = bytes.fromhex("ab" * 32)

    one = entry(image_name(digest, "JPEG"), 5)
    other = entry(result_name("req-0f", 1_700_000_000.0), 6)

    assert one == Entry(f"image.{'ab' * 32}.jpeg", "image", f"images/ab/{'ab' * 32}", "image/jpeg", 5)
    assert other == Entry(
        "result.20231114.req-0f.json", "result", "results/2023/11/14/req-0f.json", "application/json", 6
    )
    assert entry("lock", 0) is entry("image.ab.jpeg", 1) is entry("result.1.x.json.part", 1) is None
