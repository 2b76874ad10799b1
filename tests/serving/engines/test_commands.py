"""Command lines and environments, without starting anything. test_real_sglang.py asks SGLang's own parser."""

import pytest

from serving.config import ServeConfig
from serving.engines.commands import CPU_HOST, Host, Launch, launches, ports_needed
from toolkit.core.config import validate
from toolkit.core.errors import UsageFault

CPU, GPU = Host(gpu=False, python="py"), Host(gpu=True, python="py")
PORTS = range(1000, 1100)


def built(host: Host, /, **engine: object) -> dict[str, Launch]:
    config = validate(ServeConfig, {"engine": engine}, "test")
    return {one.name: one for one in launches(config, host, "/m", "name", PORTS)}


def flag(launch: Launch, name: str, count: int = 1) -> list[str]:
    at = launch.argv.index(name)
    return list(launch.argv[at + 1 : at + 1 + count])


def test_a_cpu_pair_is_the_default() -> None:
    """One prefill, one decode, each on its port; the bootstrap port is the prefill's own."""
    pair = built(CPU)

    assert list(pair) == ["prefill-0", "decode-0"]
    assert pair["prefill-0"].endpoint.url == "http://127.0.0.1:1000"
    assert pair["prefill-0"].endpoint.bootstrap_port == 1001
    assert flag(pair["prefill-0"], "--disaggregation-bootstrap-port") == ["1001"]
    assert pair["decode-0"].endpoint.url == "http://127.0.0.1:1002"
    assert pair["decode-0"].endpoint.bootstrap_port == 0


def test_a_cpu_engine_runs_through_the_host_folder() -> None:
    """The shims come from PYTHONPATH only; nothing is installed into the engine environment."""
    launch = built(CPU)["decode-0"]

    assert launch.argv[:3] == ("py", "-m", "cpu_engine")
    assert launch.env["PYTHONPATH"] == str(CPU_HOST)
    assert launch.env["OMP_NUM_THREADS"] == "1"
    assert flag(launch, "--disaggregation-decode-retraction-backup") == ["cpu_tensor"]


@pytest.mark.parametrize("host", [CPU, GPU], ids=["cpu", "gpu"])
def test_histogram_edges_stand_at_the_slo_thresholds(host: Host) -> None:
    """0.8 s and 3 s for TTFT, 50 ms between tokens."""
    for launch in built(host).values():
        ttft = [float(edge) for edge in flag(launch, "--bucket-time-to-first-token", 20)]
        itl = [float(edge) for edge in flag(launch, "--bucket-inter-token-latency", 24)]

        assert {0.8, 3.0} <= set(ttft)
        assert {0.05, 0.1} <= set(itl)
        assert ttft == sorted(ttft)
        assert itl == sorted(itl)


def test_gpus_are_split_into_instances() -> None:
    """Eight GPUs with tp 2: two prefills and two decodes, no id twice, no port twice."""
    engines = built(GPU, prefill={"gpus": "0-3"}, decode={"gpus": "4-7"}, tp=2)

    bases = {name: flag(one, "--base-gpu-id")[0] for name, one in engines.items()}
    assert bases == {"prefill-0": "0", "prefill-1": "2", "decode-0": "4", "decode-1": "6"}
    assert {flag(one, "--tp-size")[0] for one in engines.values()} == {"2"}
    assert len({one.endpoint.url for one in engines.values()}) == 4
    assert engines["prefill-0"].endpoint.bootstrap_port != engines["prefill-1"].endpoint.bootstrap_port
    assert all("PYTHONPATH" not in one.env for one in engines.values())
    assert all(one.argv[2] == "sglang.launch_server" for one in engines.values())


def test_spaced_gpus_use_the_step() -> None:
    """0,2 with tp 2 is one instance on every other GPU."""
    launch = built(GPU, prefill={"gpus": "0,2"}, decode={"gpus": "1,3"}, tp=2)["prefill-0"]

    assert flag(launch, "--base-gpu-id") == ["0"]
    assert flag(launch, "--gpu-id-step") == ["2"]


def test_rdma_names_its_devices_and_tcp_forces_tcp() -> None:
    """The transport is said twice, to SGLang by flag and to Mooncake by environment."""
    rdma = built(GPU, transfer="rdma", ib_device="mlx5_0")["prefill-0"]
    tcp = built(GPU, transfer="tcp")["prefill-0"]

    assert flag(rdma, "--disaggregation-transfer-backend") == ["mooncake"]
    assert flag(rdma, "--disaggregation-ib-device") == ["mlx5_0"]
    assert "MC_FORCE_TCP" not in rdma.env
    assert flag(tcp, "--disaggregation-transfer-backend") == ["mooncake_tcp"]
    assert "--disaggregation-ib-device" not in tcp.argv
    assert tcp.env["MC_FORCE_TCP"] == "1"
    assert (rdma.env["MOONCAKE_PROTOCOL"], tcp.env["MOONCAKE_PROTOCOL"]) == ("rdma", "tcp")


def test_engines_bind_the_loopback_unless_told() -> None:
    """And are reached at the loopback when they bind every address."""
    assert {flag(one, "--host")[0] for one in built(CPU).values()} == {"127.0.0.1"}
    wide = built(CPU, host="0.0.0.0")["prefill-0"]
    assert flag(wide, "--host") == ["0.0.0.0"]
    assert wide.endpoint.url == "http://127.0.0.1:1000"
    assert wide.endpoint.bootstrap_host == "127.0.0.1"
    sixth = built(CPU, host="::1")["prefill-0"].endpoint
    assert (sixth.url, sixth.bootstrap_host) == ("http://[::1]:1000", "::1")


def test_extra_arguments_come_last() -> None:
    """So that they win: everyone's first, then the role's."""
    launch = built(CPU, extra_args=["--page-size", "1"], decode={"extra_args": ["--page-size", "2"]})[
        "decode-0"
    ]

    assert launch.argv[-4:] == ("--page-size", "1", "--page-size", "2")


def test_health_does_not_generate_and_waits_are_below_the_defaults() -> None:
    """A health look is cheap; half a request does not hold its pages for SGLang's 300 s."""
    env = built(CPU)["prefill-0"].env

    assert env["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "false"
    assert int(env["SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT"]) < 300
    assert int(env["SGLANG_DISAGGREGATION_WAITING_TIMEOUT"]) < 300


@pytest.mark.parametrize(("host", "count"), [(CPU, 2 * 1 + 3), (GPU, 2 * 1 + 1)], ids=["cpu", "gpu"])
def test_ports_are_counted(host: Host, count: int) -> None:
    """Two for each prefill and one for each decode; a count is for machines without a GPU."""
    config = validate(ServeConfig, {"engine": {"decode": {"count": 3}}}, "test")

    assert ports_needed(config.engine, host) == count


def test_gpu_ids_are_checked() -> None:
    """The builder refuses what the machine would refuse later."""
    with pytest.raises(UsageFault):
        built(GPU, prefill={"gpus": "0"}, decode={"gpus": "0"})


@pytest.mark.parametrize("host", [CPU, GPU])
def test_engines_that_get_the_order_schedule_by_it_and_preempt_nobody(host: Host) -> None:
    """A preempted request would be prefilled again; one without a priority, as a probe, goes first, not last for ever."""
    for launch in built(host, priority=True).values():
        assert (
            "--enable-priority-scheduling" in launch.argv and "--disable-priority-preemption" in launch.argv
        )
        assert flag(launch, "--default-priority-value") == ["11"]
        assert launch.env["SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES"] == "1"
    for launch in built(host).values():
        assert not any("priority" in argument for argument in launch.argv)
