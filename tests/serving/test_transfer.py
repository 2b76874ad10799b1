"""What a transfer benchmark is asked, and what its figures mean."""

import pytest

from serving.transfer_plan import (
    Cell,
    choose_protocol,
    environment,
    parse_address,
    parse_sizes,
    plan,
    size_name,
)
from serving.transfer_report import cells, kv_line, milliseconds, remarks, table
from serving.transfer_result import TYPICAL, KvShape, Measured, Report, kv_time
from serving.transfer_run import ib_devices
from toolkit.core.errors import EnvironmentFault, UsageFault
from toolkit.core.slo import quantile


def event(**changes):
    told = {
        "event": "cell",
        "size_bytes": 1 << 20,
        "batch": 1,
        "transfers": 200,
        "bytes": 200 << 20,
        "elapsed_s": 0.2,
        "late_s": 0.001,
        "cpu_initiator_s": 0.1,
        "cpu_target_s": 0.05,
        "latencies_s": [0.001] * 200,
    }
    return {**told, **changes}


def report(*events, **asked):
    chosen = plan("1M", "1", "tcp", (), **asked)
    return Report(chosen, tuple(map(Measured.of, events)), "m 1", {"MC_FORCE_TCP": "1"}, "a:1", 0.0, 9.0, 2)


def test_sizes_are_powers_of_1024_each_once_in_their_order():
    assert parse_sizes("4K, 1M,64,4k,1MiB,1G") == (4096, 1 << 20, 64, 1 << 30)
    assert [size_name(size) for size in (64, 4096, 1 << 20, 1 << 30, 5000)] == [
        "64",
        "4K",
        "1M",
        "1G",
        "5000",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sizes": ""}, "--sizes: name at least one"),
        ({"sizes": "4X"}, "--sizes '4X'"),
        ({"sizes": "8"}, "from 64 bytes"),
        ({"sizes": "2G"}, "to 1G"),
        ({"batches": "0"}, "--batch '0'"),
        ({"batches": "1.5"}, "--batch '1.5'"),
        ({"seconds": 0}, "--seconds-per-size 0"),
        ({"streams": 0}, "--streams 0"),
        ({"sizes": "512M"}, "No size fits"),
        ({"protocol": "udp"}, "tcp, rdma or auto"),
        ({"protocol": "tcp", "device": "mlx5_0"}, "--protocol rdma"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_with_the_option_to_change(changes, said):
    asked = {"sizes": "4K", "batches": "1", "protocol": "auto", "ib_devices": (), **changes}

    with pytest.raises(UsageFault, match=said):
        plan(**asked)


def test_what_does_not_fit_the_buffer_is_named_and_not_run():
    chosen = plan("1M,64M", "1,16", "tcp", (), streams=2)

    assert chosen.cells == (Cell(1 << 20, 1), Cell(64 << 20, 1), Cell(1 << 20, 16))
    assert chosen.too_large == (Cell(64 << 20, 16),)


def test_auto_takes_rdma_where_a_device_is_and_says_why(tmp_path):
    (tmp_path / "mlx5_1").mkdir()
    (tmp_path / "mlx5_0").mkdir()

    assert ib_devices(tmp_path) == ("mlx5_0", "mlx5_1")
    assert ib_devices(tmp_path / "absent") == ()
    assert choose_protocol("auto", ("mlx5_0",)) == ("rdma", "/sys/class/infiniband has mlx5_0")
    assert choose_protocol("auto", ()) == ("tcp", "/sys/class/infiniband shows no device")
    assert choose_protocol("tcp", ("mlx5_0",))[0] == "tcp"
    with pytest.raises(EnvironmentFault, match="shows no device here"):
        choose_protocol("rdma", ())
    with pytest.raises(UsageFault, match=r"mlx5_7: not here. There are: mlx5_0"):
        choose_protocol("rdma", ("mlx5_0",), "mlx5_7")


def test_tcp_is_forced_as_for_the_engines_and_mooncake_bounds_a_transfer_too():
    assert environment("tcp", 3.4) == {
        "MOONCAKE_PROTOCOL": "tcp",
        "MC_TRANSFER_TIMEOUT": "3",
        "MC_FORCE_TCP": "1",
    }
    assert "MC_FORCE_TCP" not in environment("rdma", 10)


def test_an_address_is_a_host_and_a_port():
    assert parse_address("10.0.0.1:18515", "--peer") == ("10.0.0.1", 18515)
    assert parse_address("[::1]:1", "--peer") == ("::1", 1)
    for wrong in ("10.0.0.1", ":1", "a:b", "a:70000"):
        with pytest.raises(UsageFault, match="HOST:PORT"):
            parse_address(wrong, "--peer")


def test_rates_are_of_what_arrived_until_its_last_byte():
    one = Measured.of(event())

    assert one.bytes_per_s == pytest.approx((200 << 20) / 0.2)
    assert one.cpu_s_per_gb(one.cpu_initiator_s) == pytest.approx(0.1 * 1e9 / (200 << 20))


@pytest.mark.parametrize(
    ("samples", "level", "shown"),
    [(200, 0.95, "1"), (129, 0.95, ">= 1"), (661, 0.99, ">= 1"), (662, 0.99, "1"), (3, 0.5, "~1"), (11, 0.5, "1")],
)  # fmt: skip
def test_a_percentile_of_too_few_samples_is_marked(samples, level, shown):
    assert milliseconds(quantile([0.001] * samples, level)) == shown


def test_the_cache_of_a_token_is_layers_heads_dimensions_keys_and_values():
    tiny, seven = TYPICAL

    assert (tiny.bytes_per_token, seven.bytes_per_token) == (512, 57_344)
    assert seven.bytes == 172_032_000


@pytest.mark.parametrize(
    ("gb_per_s", "passes"), [(10.0, (True, True)), (2.0, (False, True)), (0.8, (False, False))]
)
def test_whether_a_requests_cache_passes_in_time_is_told_at_the_best_rate(gb_per_s, passes):
    fast = Measured.of(event(bytes=int(gb_per_s * 1e9), elapsed_s=1.0))
    slow = Measured.of(event(bytes=1000, elapsed_s=1.0))

    told = kv_time(TYPICAL[1], (slow, fast))

    assert told.passes == passes
    assert told.seconds == pytest.approx(0.172032 / gb_per_s)


def test_a_small_cache_takes_no_less_than_the_shortest_transfer():
    """The shortest that is no larger than it: a large block's time says nothing of a small cache."""
    small, large = Measured.of(event(size_bytes=4096)), Measured.of(event(latencies_s=[0.5] * 200))

    assert kv_time(KvShape("some", 1, 1, 1, 1, 4096), (small, large)).seconds == 0.001
    assert kv_time(KvShape("one token", 1, 1, 1, 1, 1), (small, large)).seconds < 1e-6


def test_the_report_says_what_was_not_run_that_the_machine_was_busy_and_every_setting():
    said = "\n".join(remarks(report(event(), streams=1)))

    assert "a load of 9.0 on 2 cores" in said
    assert "MC_FORCE_TCP=1" in said
    assert "100 ms no (needs 1.72 GB/s)" in kv_line(kv_time(TYPICAL[1], (Measured.of(event(elapsed_s=1.0)),)))


def test_the_table_has_a_column_more_for_several_streams():
    assert table(report(event()))[0].split()[:3] == ["block", "batch", "transfers"]
    assert "MB/s each" in table(report(event(), streams=4))[0]
    assert cells(Measured.of(event()), 4)[-1] == "262"


def test_the_json_holds_no_value_where_there_is_only_a_bound():
    document = report(event(latencies_s=[0.001] * 100)).to_dict()

    assert document["cells"][0]["latency_s"]["p95"] == {"value": None, "at_least": 0.001, "needs": 130}
    assert document["kv"][1]["within"].keys() == {"0.03", "0.1"}
    assert document["verified"] is True
