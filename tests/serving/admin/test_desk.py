"""A change is on the disk before it holds, and holds again after a kill -9."""

import asyncio
import json
import os

import pytest

from serving.admin.desk import Desk
from serving.admin.record import NotRecorded, Record
from tests.serving.admin.settings import UP, configured
from toolkit.core.clock import VirtualClock

LIMIT = "schedule.max_in_flight"


class Office:
    """A desk over a file; what was applied is kept."""

    def __init__(self, path):
        self.clock = VirtualClock()
        self.applied = []
        self.desk = Desk(configured(), Record(path), self.clock, self.applied.append, lambda: UP)
        self.desk.restore()

    def set(self, **options):
        values = options.pop("values")
        return self.desk.change(values, who="ann", reason="", **{"for_s": None, "force": False, **options})

    @property
    def limit(self):
        return self.desk.ledger.present.values()[LIMIT]


def test_changes_hold_again_after_a_restart(tmp_path):
    """Nobody calls anything at the end: a killed gateway's changes are all there."""

    async def scenario():
        first = Office(tmp_path / "changes.jsonl")
        await first.set(values={LIMIT: 32})
        await first.set(values={"instance.decode-1.drained": True})

        second = Office(tmp_path / "changes.jsonl")
        assert second.desk.ledger.changes == first.desk.ledger.changes
        assert second.applied[-1].config.schedule.max_in_flight == 32
        assert second.applied[-1].instances["decode-1"].drained
        assert (await second.set(values={LIMIT: 8})).id == 3

    asyncio.run(scenario())


def test_a_line_cut_off_by_a_crash_was_never_a_change(tmp_path):
    """And the next one does not run into it."""

    async def scenario():
        path = tmp_path / "changes.jsonl"
        await Office(path).set(values={LIMIT: 32})
        with path.open("ab") as file:
            file.write(b'{"id":2,"at":1,"who":"a')

        office = Office(path)
        assert office.limit == 32
        await office.set(values={LIMIT: 8})
        assert Office(path).limit == 8

    asyncio.run(scenario())


def test_a_line_that_is_no_change_is_left_out(tmp_path, caplog):
    """A damaged record is told, and stops no gateway."""

    async def scenario():
        path = tmp_path / "changes.jsonl"
        await Office(path).set(values={LIMIT: 32})
        path.write_bytes(b'{"what": 1}\nnoise\n' + path.read_bytes())

        assert Office(path).limit == 32
        assert "line 1" in caplog.text and "line 2" in caplog.text

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "wrong",
    [
        {"after": [1]},
        {"after": {"other": 1}},
        {"before": None},
        {"id": "2"},
        {"id": True},
        {"at": None},
        {"until": "soon"},
        {"of": [1]},
        {"who": 1},
        {"kind": "spell"},
    ],
)
def test_a_line_of_wrong_types_stops_no_gateway(tmp_path, caplog, wrong):
    """What it says of the rest is not believed either."""

    async def scenario():
        path = tmp_path / "changes.jsonl"
        await Office(path).set(values={LIMIT: 32})
        line = json.loads(path.read_bytes())
        with path.open("ab") as file:
            file.write(json.dumps({**line, "id": 2, "after": {LIMIT: 8}, **wrong}).encode() + b"\n")

        assert Office(path).limit == 32
        assert "line 2 is no change" in caplog.text

    asyncio.run(scenario())


def test_a_change_that_cannot_end_is_told_once_and_writes_nothing(tmp_path, caplog):
    """However often it is tried; a restart knows it as well."""

    async def scenario():
        path = tmp_path / "changes.jsonl"
        office = Office(path)
        await office.set(values={"retry.cap_s": 5.0}, for_s=3)
        await office.set(values={"retry.base_s": 2.0})
        office.clock.advance(10)
        written = path.read_bytes()
        for _ in range(3):
            await office.desk.expire()
        assert path.read_bytes() == written and caplog.text.count("holds beyond its time") == 1

        again = Office(path)
        again.clock.advance(10)
        await again.desk.expire()
        assert list(again.desk.ledger.kept) == [1] and path.read_bytes() == written

    asyncio.run(scenario())


def test_what_the_disk_does_not_take_does_not_change(tmp_path):
    """503 change_not_recorded; the settings stay as they are."""

    async def scenario():
        office = Office(tmp_path / "no folder" / "changes.jsonl")
        with pytest.raises(NotRecorded) as refused:
            await office.set(values={LIMIT: 32})
        assert (refused.value.status, office.limit, office.applied) == (503, 64, [])

    asyncio.run(scenario())


def test_a_disk_that_fails_after_the_write_takes_it_back(tmp_path, monkeypatch):
    """What was told as not changed must not hold after a restart."""

    async def scenario():
        path = tmp_path / "changes.jsonl"
        office = Office(path)
        await office.set(values={LIMIT: 32})

        def failing(_):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", failing)
        with pytest.raises(NotRecorded):
            await office.set(values={LIMIT: 8})
        assert Office(path).limit == 32

    asyncio.run(scenario())


def test_changes_at_the_same_time_come_one_after_the_other(tmp_path):
    """Each sees what the one before it made."""

    async def scenario():
        office = Office(tmp_path / "changes.jsonl")
        made = await asyncio.gather(*(office.set(values={LIMIT: value}) for value in (10, 20, 30)))
        assert [(one.id, one.before[LIMIT]) for one in made] == [(1, 64), (2, 10), (3, 20)]

    asyncio.run(scenario())


def test_a_change_for_a_while_ends_also_when_the_gateway_was_down_then(tmp_path):
    """The time is the wall's, so a restart does not begin it anew."""

    async def scenario():
        path = tmp_path / "changes.jsonl"
        first = Office(path)
        await first.set(values={LIMIT: 32}, for_s=60)

        second = Office(path)
        second.clock.advance(59)
        await second.desk.expire()
        assert second.limit == 32
        second.clock.advance(1)
        await second.desk.expire()
        assert second.limit == 64 and second.applied[-1].config.schedule.max_in_flight == 64

    asyncio.run(scenario())


def test_the_end_comes_by_itself(tmp_path):
    """`run` waits for the next end, also of a change made while it waits."""

    async def scenario():
        office = Office(tmp_path / "changes.jsonl")
        running = asyncio.create_task(office.desk.run())
        await asyncio.sleep(0)
        await office.set(values={LIMIT: 32}, for_s=0.02)
        office.clock.advance(0.02)
        async with asyncio.timeout(5):
            while office.limit == 32:
                await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
