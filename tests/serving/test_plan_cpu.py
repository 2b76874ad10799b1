"""Cores from costs: the arithmetic, the queueing, what is measured and what is kept."""

import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from serving.plan_cpu import ClassLoad, ImageCost, RequestCost, mean_wait, plan_cpu
from serving.plan_measure import LEAST, bounds, image_cost, measure_images
from serving.plan_process import below, spent
from serving.plan_store import KEPT, Measurement, find, fingerprint, keep

IMAGE = ImageCost(
    n=20,
    alone_s=0.09,
    busy_s=0.1,
    gateway_s=0.1,
    mean_s=0.1,
    low_s=0.09,
    high_s=0.11,
    p50_s=0.1,
    p95_s=0.2,
    cv2=0.5,
)
REQUEST = RequestCost(n=50, few_s=0.01, many_s=0.008, mean_s=0.01, loop_s=0.008)
TEXT = ClassLoad("text_only", 0.5, 0.0, REQUEST, None)
PHOTOS = ClassLoad("image_short", 0.5, 2.0, REQUEST, IMAGE)


def test_cores_are_seconds_per_image_times_images_times_rate() -> None:
    """Half of 10/s with two images of 0.1 s each, and 0.01 s for each request."""
    planned = plan_cpu([TEXT, PHOTOS], qps=10, headroom=0.3, cores_per_gateway=4)

    assert planned.busy == pytest.approx(5 * 2 * 0.1 + 10 * 0.01)
    assert planned.cores == math.ceil(1.1 / 0.7)
    assert planned.gateways == 1
    assert (planned.low, planned.high) == pytest.approx((1.0, 1.2))


def test_headroom_is_room_on_the_cores_not_on_the_load() -> None:
    """At the peak the share that was asked for is free."""
    planned = plan_cpu([PHOTOS], qps=100, headroom=0.4, cores_per_gateway=8)

    assert planned.busy <= planned.cores * 0.6 < planned.busy + 0.6


def test_a_whole_number_of_cores_is_not_rounded_up_by_an_error_of_arithmetic() -> None:
    """0.7 over 0.7 is one."""
    load = ClassLoad("text_only", 1.0, 0.0, RequestCost(1, 0.7, 0.7, 0.7, 0.1), None)

    assert plan_cpu([load], qps=1, headroom=0.3, cores_per_gateway=1).cores == 1


def test_gateways_are_bound_by_their_cores() -> None:
    """11 busy cores, 70 % of four per process."""
    planned = plan_cpu([TEXT, PHOTOS], qps=100, headroom=0.3, cores_per_gateway=4)

    assert (planned.gateways, planned.bound_by) == (4, "cores")


def test_gateways_are_bound_by_their_event_loop() -> None:
    """Text alone: cores do not help a loop that is one thread."""
    planned = plan_cpu([replace(TEXT, share=1.0)], qps=300, headroom=0.3, cores_per_gateway=64)

    assert (planned.gateways, planned.bound_by) == (math.ceil(300 * 0.008 / 0.7), "event loop")


def test_every_gateway_costs_something_without_load() -> None:
    """Health checks and timers."""
    planned = plan_cpu([TEXT], qps=1, headroom=0.0, cores_per_gateway=2, idle_cores=0.05)

    assert planned.busy == pytest.approx(0.5 * 0.01 + 0.05)


def test_cache_hits_save_pictures_and_no_requests() -> None:
    """A found image is still read, hashed and handed over."""
    without = plan_cpu([TEXT, PHOTOS], qps=10, headroom=0.3, cores_per_gateway=4)
    planned = plan_cpu([TEXT, PHOTOS], qps=10, headroom=0.3, cores_per_gateway=4, cache_hit=0.2)

    assert planned.saved == pytest.approx(0.2)
    assert planned.busy == pytest.approx(without.busy - 0.2)


@pytest.mark.parametrize(
    ("servers", "utilisation", "cv2", "expected"),
    [
        (1, 0.5, 1.0, 1.0),  # M/M/1: rho / (1 - rho)
        (1, 0.5, 0.0, 0.5),  # M/D/1: half of it
        (2, 0.5, 1.0, 1 / 3),  # M/M/2: Erlang C is 1/3
        (400, 0.5, 1.0, 0.0),  # many cores: nobody waits
        (1, 1.0, 1.0, math.inf),
    ],
)
def test_waits_are_those_of_the_textbook(
    servers: int, utilisation: float, cv2: float, expected: float
) -> None:
    """Where the approximation is exact. In service times."""
    assert mean_wait(servers, utilisation, 1.0, cv2) == pytest.approx(expected, abs=1e-9)


def test_the_dearer_way_is_planned_with() -> None:
    """All cores at once, where that costs more; one at a time, where it does not."""
    busy = image_cost([0.010] * 20, [0.012] * 20)
    alone = image_cost([0.010] * 20, [0.009] * 20)

    assert (busy.mean_s, busy.alone_s, busy.busy_s) == pytest.approx((0.012, 0.010, 0.012))
    assert alone.mean_s == pytest.approx(0.010)


def test_what_a_gateway_adds_is_planned_with() -> None:
    """Pipes to a process of its own are part of a large image's price; a gateway that is cheaper changes nothing."""
    dearer, cheaper = IMAGE.in_a_gateway(0.15), IMAGE.in_a_gateway(0.05)

    assert (dearer.mean_s, dearer.low_s, dearer.p95_s) == pytest.approx((0.15, 0.135, 0.3))
    assert replace(cheaper, gateway_s=IMAGE.gateway_s) == IMAGE


def test_bounds_narrow_with_the_images_and_hold_the_mean() -> None:
    """A bootstrap over images, the same each time."""
    few, many = [0.01, 0.02, 0.03, 0.04] * 4, [0.01, 0.02, 0.03, 0.04] * 64

    assert bounds(few) == bounds(few)
    assert bounds(few)[0] < bounds(many)[0] < 0.025 < bounds(many)[1] < bounds(few)[1]
    assert bounds(many)[1] - bounds(many)[0] == pytest.approx(2 * 1.96 * 0.01118 / 16, rel=0.1)


def test_each_image_is_measured_once_in_either_way_and_never_twice() -> None:
    """So nothing is cached, and n images are n."""
    seen: list[bytes] = []
    images = {"a": iter([b"%d" % n for n in range(40)]), "none": iter([])}
    costs = measure_images(images, seen.append, cores=2, cpu_s=1e-9)

    assert set(costs) == {"a"}
    assert costs["a"].n == LEAST
    assert seen.count(b"0") == 1  # the warm-up
    assert all(seen.count(b"%d" % n) == 2 for n in range(1, LEAST + 1))


def test_what_is_measured_is_cpu_time() -> None:
    """Waiting costs nothing."""

    def work(data: bytes) -> None:
        time.sleep(0.002)
        until = time.thread_time() + 0.004
        while time.thread_time() < until:
            pass

    cost = measure_images({"a": iter([b""] * 40)}, work, cores=2, cpu_s=0.2)["a"]

    assert 0.0039 < cost.mean_s < 0.008
    assert cost.low_s <= cost.mean_s <= cost.high_s


@pytest.mark.slow
def test_a_process_is_accounted_with_its_children() -> None:
    """Those that live and those that ended: decoding may happen in either."""
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    ended = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    lives = f"child = subprocess.Popen([sys.executable, '-c', {burn!r} + 'time.sleep(60)'])"
    script = f"{ended}\n{lives}\nprint('there', flush=True)\nsys.stdin.read(); child.kill(); child.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        parent.stdout.readline()
        until = time.monotonic() + 20
        while spent(parent.pid).whole_s < 0.6 and time.monotonic() < until:
            time.sleep(0.05)
        used, children = spent(parent.pid), below(parent.pid)
        parent.stdin.close()

    assert used.whole_s >= 0.6
    assert used.main_thread_s < 0.3
    assert len(children) == 1


def measured(**changes: object) -> Measurement:
    plain = Measurement(
        profile="mixed", load="l", recipe="r", host=fingerprint(), measured_at=1.0, taken_s=2.0, cores=2,
        idle_cores=0.01, images={"image_short": IMAGE}, requests={"image_short": REQUEST},
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_measurement_is_found_as_it_was_kept(tmp_path: Path) -> None:
    """By load, recipe and host; a newer one of the same takes its place."""
    path = tmp_path / "a" / "plan.json"
    keep(measured(), path)
    keep(measured(load="other"), path)
    keep(measured(measured_at=5.0), path)

    assert find(path, "l", "r", fingerprint()) == measured(measured_at=5.0)
    assert find(path, "other", "r", fingerprint()) == measured(load="other")
    assert find(path, "l", "another recipe", fingerprint()) is None
    assert find(path, "l", "r", {**fingerprint(), "cpu": "another"}) is None


def test_what_cannot_be_read_was_not_measured(tmp_path: Path) -> None:
    """An older version's file, or a broken one, is measured over; the file stays small."""
    path = tmp_path / "plan.json"
    path.write_text('[{"profile": "mixed"}]')

    assert find(path, "l", "r", fingerprint()) is None
    for number in range(KEPT + 5):
        keep(measured(load=f"{number}"), path)
    assert find(path, "4", "r", fingerprint()) is None
    assert find(path, f"{KEPT + 4}", "r", fingerprint()) is not None
