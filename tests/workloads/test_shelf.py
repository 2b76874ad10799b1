"""Prepared bytes are the same wherever they lie, and a full disk is told."""

import pytest

from toolkit.core.errors import UsageFault
from toolkit.core.http.request import build_request
from workloads.shelf import SEGMENT_BYTES, SMALL_BYTES, Shelf

BIG = bytes(range(256)) * 1024  # 256 KiB


def test_what_passes_the_limit_lies_in_a_file(tmp_path, monkeypatch):
    """The first is held as it is, the later ones are views of a file that no folder shows; small ones never are."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shelf = Shelf(held_bytes=len(BIG))
    pieces = [BIG, BIG[::-1], b"small", BIG + b"!"]

    kept = [shelf.put(piece) for piece in pieces]
    shelf.close()

    assert kept == pieces
    assert kept[0] is pieces[0]
    assert [type(piece) for piece in kept] == [bytes, memoryview, bytes, memoryview]
    assert (shelf.filed_bytes, list(tmp_path.iterdir())) == (SEGMENT_BYTES, [])
    with pytest.raises(TypeError):
        kept[1][0] = 1


def test_segments_follow_each_other(monkeypatch):
    """A piece that does not fit into what is left, or into any, gets a segment of its own."""
    monkeypatch.setattr("workloads.shelf.SEGMENT_BYTES", SMALL_BYTES * 3)
    shelf = Shelf(held_bytes=0)
    pieces = [bytes([n]) * (SMALL_BYTES * (1 + n % 5) + n) for n in range(12)]

    kept = [shelf.put(piece) for piece in pieces]
    shelf.close()

    assert kept == pieces


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    """Before anything is written, with the way out."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with pytest.raises(UsageFault, match="TMPDIR"):
        Shelf(held_bytes=0).put(BIG)


def test_a_view_is_sent_without_a_copy():
    """The request's bytes are the view itself, after the head."""
    body = memoryview(BIG)

    request = build_request("POST", "http://127.0.0.1:1/x", (), body)

    assert len(request.wire) == 2
    assert request.wire[1] is body
    assert f"content-length: {len(BIG)}".encode() in bytes(request.wire[0])
