"""The journal loses no request, and tells when it loses a record."""

import resource
import signal

from toolkit.core.journal import Journal, files, read


def make(folder, **kwargs):
    settings = {"max_file_bytes": 10_000, "keep_files": 3, **kwargs}
    return Journal(folder, "requests", **settings)


def test_records_come_back_in_order(tmp_path):
    """One line each, readable while it is written."""
    journal = make(tmp_path)
    for number in range(100):
        journal.append({"n": number})
    journal.close()

    assert [record["n"] for record in read(tmp_path / "requests.jsonl")] == list(range(100))


def test_it_turns_over_and_keeps_the_newest_files(tmp_path):
    """The disk it may use is max_file_bytes x keep_files."""
    for number in range(6):
        journal = make(tmp_path, max_file_bytes=40)
        journal.append({"n": number, "pad": "x" * 20})
        journal.close()

    kept = files(tmp_path, "requests")
    assert [path.name for path in kept] == ["requests.jsonl", "requests.1.jsonl", "requests.2.jsonl"]
    assert [record["n"] for path in kept for record in read(path)] == [5, 4, 3]


def test_a_disk_that_fails_is_told_once_and_survived(tmp_path):
    """Records are lost, counted and told; later ones are written again."""
    faults = []
    journal = make(tmp_path, on_fault=faults.append)
    journal.path.mkdir()  # a folder in the file's place: every open fails
    journal.append({"n": 1})
    journal.close()
    journal = make(tmp_path, on_fault=faults.append)
    journal.append({"n": 2})
    journal.append({"n": 3})
    journal.close()

    assert len(faults) == 2 and "1 record(s) lost" in faults[0]
    assert journal.dropped == 2


def test_a_full_disk_leaves_no_half_line(tmp_path):
    """/dev/full refuses every write, as a full disk does."""
    faults = []
    (tmp_path / "requests.jsonl").symlink_to("/dev/full")
    journal = make(tmp_path, on_fault=faults.append)
    journal.append({"n": 1})
    journal.close()

    assert journal.dropped == 1
    assert "No space left" in faults[0]


def test_a_record_that_is_not_json_is_lost_alone_and_told(tmp_path):
    """A fault of the caller must not stop the writer."""
    faults = []
    journal = make(tmp_path, on_fault=faults.append)
    journal.append({"bad": object()})
    journal.close()
    journal = make(tmp_path)
    journal.append({"n": 2})
    journal.close()

    assert faults
    assert [record["n"] for record in read(tmp_path / "requests.jsonl")] == [2]


def test_a_half_written_last_line_is_left_out(tmp_path):
    """What a kill -9 leaves behind does not hide the rest."""
    (tmp_path / "requests.jsonl").write_bytes(b'{"n":1}\n{"n":2}\n{"n":')

    assert [record["n"] for record in read(tmp_path / "requests.jsonl")] == [1, 2]


def test_closing_twice_is_allowed(tmp_path):
    """Owners close in finally."""
    journal = make(tmp_path)
    journal.close()
    journal.close()


def test_after_a_full_disk_the_next_record_stands_on_its_own_line(tmp_path):
    """A half line that stays would swallow the first record after it."""
    path = tmp_path / "requests.jsonl"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, limit[1]))
        journal = make(tmp_path)
        for number in range(3):
            journal.append({"n": number, "pad": "x" * 100})
        journal.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, old)
    assert path.read_bytes() == b""
    journal = make(tmp_path)
    journal.append({"n": 9})
    journal.close()

    assert [record["n"] for record in read(path)] == [9]
