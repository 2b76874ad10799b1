"""Retention deletes what is ours and too old, and nothing else."""

import os
import time
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore

from serving.storage.remote import Remote
from serving.storage.sweep import DAY_S, expired, sweep
from tests.serving.storage.kept import image_key, keys, picture
from tests.serving.storage.weed import Weed

NOW = 1_800_000_000.0
IMAGE, OTHER_IMAGE = image_key(picture(1)[0]), image_key(picture(2)[0])
RESULT, OTHER_RESULT = "results/2026/11/30/req-1.json", "results/2026/11/30/req-2.json"
FOREIGN = ["images/readme.txt", "results/2026/notes.json", "images/ab/" + "A" * 64, "elsewhere/x"]


def test_only_our_own_objects_past_their_retention_are_found() -> None:
    page = [(IMAGE, NOW - 11), (OTHER_IMAGE, NOW - 9), (RESULT, NOW - 11), *((key, 0.0) for key in FOREIGN)]

    assert expired(page, NOW - 10) == [(IMAGE, "image"), (RESULT, "result")]


def test_a_local_folder_is_swept_and_its_empty_folders_go(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, automatic_cleanup=True)
    for key in (IMAGE, OTHER_IMAGE, RESULT, OTHER_RESULT, *FOREIGN):
        obstore.put(store, key, b"x")
        old = key not in (OTHER_IMAGE, OTHER_RESULT)
        os.utime(tmp_path / key, (NOW - (11 if old else 9) * DAY_S,) * 2)

    deleted = sweep(Remote(store), NOW - 10 * DAY_S, lambda: True)

    assert deleted == {"image": 1, "result": 1}
    assert keys(store) == sorted([OTHER_IMAGE, OTHER_RESULT, *FOREIGN])
    assert not (tmp_path / IMAGE).parent.exists()


def test_it_ends_between_two_pages_when_told(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    obstore.put(store, IMAGE, b"x")
    obstore.put(store, RESULT, b"x")

    deleted = sweep(Remote(store), time.time() + 60, lambda: False)

    assert deleted == {"image": 1}
    assert keys(store) == [RESULT]


def test_several_gateways_may_sweep_at_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, automatic_cleanup=True)
    for key in (IMAGE, OTHER_IMAGE):
        obstore.put(store, key, b"x")
    (tmp_path / IMAGE).unlink()  # by another, after we listed

    Remote(store).delete([IMAGE, OTHER_IMAGE])

    assert keys(store) == []


@pytest.mark.slow
def test_s3_is_swept_through_the_same_calls(weed: Weed) -> None:
    store = weed.store("swept")
    many = [image_key(picture(number, 10)[0]) for number in range(40)]
    for key in (*many, RESULT, *FOREIGN):
        obstore.put(store, key, b"x")
    remote = Remote(store)

    assert sweep(remote, time.time() - 60, lambda: True) == {}
    assert len(keys(store)) == 41 + len(FOREIGN)
    assert sweep(remote, time.time() + 60, lambda: True) == {"image": 40, "result": 1}
    assert keys(store) == sorted(FOREIGN)
    remote.delete(many)
