"""Public traces are read as their owners publish them, and a broken one says where."""

import gzip
from itertools import islice, pairwise

import pytest

from toolkit.core.errors import UsageFault
from workloads.traces.azure import read_azure
from workloads.traces.catalog import BUILT_IN, read_trace, trace_path
from workloads.traces.mooncake import read_mooncake
from workloads.traces.record import TraceFault, TraceRecord
from workloads.traces.servegen import read_servegen


def test_azure_2023_is_read_whole():
    """Microsoft's own rows: the numbers of the first, times that rise, no images."""
    records = list(read_trace("azure-2023-conversation"))

    assert len(records) == 2000
    assert records[0] == TraceRecord(0.0, 374, 44)
    assert records[1] == TraceRecord(4.314579, 396, 109)
    assert all(before.at_s <= after.at_s for before, after in pairwise(records))
    assert max(record.text_tokens for record in records) > 4000


def test_azure_2023_code_is_read_too():
    """Long prompts and short answers, in the owner's own rows."""
    records = list(read_trace("azure-2023-code"))

    assert len(records) == 500
    assert records[:2] == [TraceRecord(0.0, 4808, 10), TraceRecord(0.052, 3180, 8)]
    assert all(before.at_s <= after.at_s for before, after in pairwise(records))


def test_azure_2025_is_read_as_its_owner_prints_it():
    """The first five and the last five of a million rows: a week between them, up to 16 images."""
    records = list(read_trace("azure-2025-multimodal"))

    assert len(records) == 10
    assert records[:2] == [TraceRecord(0.0, 770, 491, 0), TraceRecord(5.55, 949, 126, 1)]
    assert [record.images for record in records] == [0, 1, 1, 0, 1, 16, 1, 1, 1, 0]
    assert records[-1].at_s == pytest.approx(7 * 86_400 - 0.305, abs=0.001)


def test_every_built_in_trace_says_whose_it_is():
    """No excerpt without its source and licence."""
    told = (trace_path("azure-2023-code").parent / "LICENSES.txt").read_text(encoding="utf-8")

    for name in BUILT_IN:
        assert trace_path(name).exists()
        assert trace_path(name).name in told


def test_azure_2025_has_images(tmp_path):
    """The multimodal trace's columns and time zone, also gzipped."""
    text = (
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
        "2024-10-15T12:00:05.819Z,1,949,126\n"
        "2024-10-15T12:00:06Z,16,4564,137\n"
    )
    path = tmp_path / "AzureLMMInferenceTrace_multimodal.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))

    assert list(read_trace(str(path))) == [TraceRecord(0.0, 949, 126, 1), TraceRecord(0.181, 4564, 137, 16)]


def test_mooncake_is_read_whole():
    """Kimi's own lines: seconds instead of milliseconds, blocks kept, prefixes shared."""
    records = list(read_trace("mooncake-conversation"))

    assert len(records) == 500
    assert records[0] == TraceRecord(0.0, 6758, 500, blocks=tuple(range(14)))
    assert {record.blocks[0] for record in records[:4]} == {0}
    assert 10 < records[-1].at_s < 1000


def test_servegen_clients_are_read_whole():
    """Alibaba's 35 clients: a day of rates each, and distributions that sum to 1."""
    clients = list(read_servegen(trace_path("servegen-mm-image")))

    assert [client.number for client in clients] == list(range(35))
    assert all(len(client.rates) == 144 for client in clients)
    assert clients[0].rates[0].rate == 0.805
    assert clients[0].rate(0.0, 21_600.0) == pytest.approx(1.143, abs=0.001)
    assert clients[9].rate(43_200.0, 64_800.0) == 0.0
    for client in clients:
        for asked in client.asked:
            assert sum(share for _, share in asked.text_tokens) == pytest.approx(1)
    wide = clients[12].asked[0]
    assert max(value for value, _ in wide.image_count) == 49
    assert max(value for value, _ in wide.image_tokens) == 1280


def test_traces_are_streamed(tmp_path):
    """The first record of a file is there before its broken end is met."""
    path = tmp_path / "long.jsonl"
    path.write_text('{"timestamp": 5, "input_length": 1, "output_length": 2}\nbroken\n')
    records = read_mooncake(path)

    assert next(records) == TraceRecord(0.0, 1, 2)
    with pytest.raises(TraceFault):
        next(records)


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", 1, "no Azure trace"),
        ("TIMESTAMP,ContextTokens\n", 1, "GeneratedTokens"),
        (AZURE + "2023-11-16 18:15:46.68,374\n", 2, "index out of range"),
        (AZURE + "2023-11-16 18:15:46.68,374,x\n", 2, "'x'"),
        (AZURE + "2023-11-16 18:15:46.68,-1,4\n", 2, "under 0"),
        (AZURE + "yesterday,1,4\n", 2, "yesterday"),
        (AZURE + "2023-11-16 18:15:46.6x8,1,4\n", 2, "no time"),
        (AZURE + "2023-11-16 18:15:46,1,4\n\n2023-11-16 18:15:45,1,4\n", 4, "earlier"),
    ],
)
def test_a_broken_azure_line_is_named(text, line, told, tmp_path):
    """File, line and what is wrong with it."""
    path = tmp_path / "mine.csv"
    path.write_text(text)

    with pytest.raises(TraceFault, match=told) as caught:
        list(read_azure(path))

    assert (caught.value.path, caught.value.line) == (path, line)


GOOD = '{"timestamp": 5, "input_length": 1, "output_length": 2, "hash_ids": [3]}\n'


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("{", 1, "JSON|unexpected|EOF|expected|parse"),
        (GOOD + "[]", 2, "indices"),
        (GOOD + '{"timestamp": 6, "input_length": 1}', 2, "output_length"),
        (GOOD + '{"timestamp": 4, "input_length": 1, "output_length": 2}', 2, "earlier"),
        (GOOD + '{"timestamp": 6, "input_length": 1.5, "output_length": 2}', 2, "whole number"),
        (GOOD + '{"timestamp": 6, "input_length": 1, "output_length": 2, "hash_ids": [-1]}', 2, "under 0"),
        (GOOD + '{"timestamp": 6, "input_length": 1, "output_length": true}', 2, "whole number"),
    ],
)
def test_a_broken_mooncake_line_is_named(text, line, told, tmp_path):
    """File, line and what is wrong with it."""
    path = tmp_path / "mine.jsonl"
    path.write_text(text)

    with pytest.raises(TraceFault, match=told) as caught:
        list(read_mooncake(path))

    assert (caught.value.path, caught.value.line) == (path, line)


DATA = '{"0": {"text_tokens": "{5: 1.0}", "image_tokens": "{5: 1.0}", "image_count": "{1: 1.0}", "output_tokens": "{5: 1.0}"}}'


@pytest.mark.parametrize(
    ("rates", "data", "line", "told"),
    [
        ("0,1,1,Gamma,1,1\n600,x,1,Gamma,1,1\n", DATA, 2, "'x'"),
        ("0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", DATA, 2, "windows rise"),
        ("0,-1,1\n", DATA, 1, "0 or larger"),
        ("0,1\n", DATA, 1, "out of range"),
        ("0,1,1\n", "{\n{", 2, "property name"),
        ("0,1,1\n", DATA.replace("image_count", "images"), 0, "image_count"),
        ("0,1,1\n", DATA.replace("{5: 1.0}", "{5: 0.5}"), 0, "sum to 0.5"),
        ("0,1,1\n", DATA.replace("{5: 1.0}", "5"), 0, "no distribution"),
        ("0,1,1\n", "[]", 0, "items"),
    ],
)
def test_a_broken_client_is_named(rates, data, line, told, tmp_path):
    """The file of the pair, and the line where lines mean something."""
    (tmp_path / "chunk-3-trace.csv").write_text(rates)
    (tmp_path / "chunk-3-dataset.json").write_text(data)

    with pytest.raises(TraceFault, match=told) as caught:
        list(read_servegen(tmp_path))

    assert caught.value.path.name.startswith("chunk-3-")
    assert caught.value.line == line


def test_what_is_missing_is_named(tmp_path):
    """No such trace, no such folder, a folder without clients, a client without data, a name without a format."""
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UsageFault, match="azure-2023-conversation"):
        read_trace("azure-2019")
    with pytest.raises(UsageFault, match="format"):
        read_trace(str(tmp_path / "notes.txt"))
    with pytest.raises(TraceFault, match="chunk-N-trace"):
        list(read_servegen(tmp_path))
    with pytest.raises(TraceFault, match="No such file"):
        list(read_servegen(tmp_path / "none"))
    (tmp_path / "chunk-0-trace.csv").write_text("0,1,1\n")
    with pytest.raises(TraceFault, match=r"chunk-0-dataset\.json"):
        list(read_servegen(tmp_path))


def test_bytes_that_are_no_text_are_named(tmp_path):
    """A file of another kind, or a torn archive, is told as a file."""
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xff\xfe\x00")
    torn = tmp_path / "x.csv.gz"
    torn.write_bytes(gzip.compress(AZURE.encode() * 100)[:40])

    for each in (path, torn):
        with pytest.raises(TraceFault, match=r"x\.csv"):
            list(islice(read_azure(each), 10))
