"""A probe is judged while it runs, without a bias for those who are quick."""

import pytest

from toolkit.core.plan import PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass
from toolkit.core.slo import Slo
from workloads.peak import Verdict
from workloads.peak_watch import Test, Watch, test_for
from workloads.record import LoadOutcome, LoadSample

STANDARD, BATCH = SloClass.STANDARD, SloClass.BATCH
SLOS = {STANDARD: Slo(ttft_s=1.0, itl_p95_s=0.1), BATCH: Slo(), SloClass.REALTIME: Slo(ttft_s=0.5)}


def plan(count, every=lambda n: STANDARD, rate=10.0):
    return [PlannedRequest(n, n / rate, WorkloadClass.TEXT_ONLY, every(n), "hi", (), 4) for n in range(count)]


def sample(request, ttft_s=0.1, outcome=LoadOutcome.COMPLETED, gap_s=0.01, code=None):
    times = (request.at_s + ttft_s, request.at_s + ttft_s + gap_s) if outcome is LoadOutcome.COMPLETED else ()
    return LoadSample(
        request.index, request.workload_class, request.slo_class, request.at_s, outcome, request.at_s + 1, request.at_s,
        token_times_s=times, code=code,
    )  # fmt: skip


def watched(requests, objective=0.8, confidence=0.8):
    return Watch(requests, SLOS, Test(objective, confidence, block_s=0.2, warmup_s=1.0))


def test_a_faultless_probe_is_held_before_its_end_and_a_failing_one_fails_soon():
    """Both end when they are decided; the warm-up is not counted."""
    requests = plan(400)
    ends = {}
    for name, ttft_s in (("well", 0.1), ("late", 1.5)):
        watch = watched(requests)
        for request in requests:
            watch.record(sample(request, ttft_s))
            watch.tick(request.at_s, ())
            if watch.decided:
                break
        ends[name] = (watch.verdict, watch.overall.known)

    assert ends["well"][0] is Verdict.HELD and ends["well"][1] < 100
    assert ends["late"][0] is Verdict.FAILED and ends["late"][1] < 20


def test_quick_answers_do_not_speak_for_the_open_ones_before_them():
    """The first judged request streams on: nothing after it counts until it ends."""
    requests = plan(400)
    watch = watched(requests)
    for request in requests[11:]:
        watch.record(sample(request))
    watch.record(sample(requests[9]))
    watch.tick(39.0, ())

    assert (watch.overall.known, watch.decided) == (0, False)
    watch.record(sample(requests[10]))
    watch.tick(39.1, ())
    assert watch.verdict is Verdict.HELD


def test_a_silent_server_fails_without_a_single_answer():
    """A request without a token misses as soon as its limit has passed; before that it is open."""
    requests = plan(400)
    watch = watched(requests)

    watch.tick(1.9, [r.index for r in requests if r.at_s <= 1.9])
    assert watch.misses["ttft"] == 9  # those due before 0.9 s
    watch.tick(6.0, [r.index for r in requests if r.at_s <= 6.0])
    assert watch.verdict is Verdict.FAILED
    assert watch.failed_class == "standard"


def test_one_class_that_fails_fails_the_rate():
    """Nine in ten are well; the tenth, a class of its own, is always refused."""
    requests = plan(2000, lambda n: BATCH if n % 10 == 0 else STANDARD)
    watch = watched(requests)
    for request in requests:
        bad = request.slo_class is BATCH
        outcome = LoadOutcome.REFUSED if bad else LoadOutcome.COMPLETED
        watch.record(sample(request, outcome=outcome, code="queue_full" if bad else None))
        watch.tick(request.at_s, ())

    assert watch.verdict is Verdict.FAILED
    assert watch.failed_class == "batch"
    assert watch.misses["queue_full"] > 0


def test_a_class_too_rare_to_be_confirmed_does_not_hold_the_rate_up():
    """Three requests prove nothing: they are part of the whole, and not required alone."""
    requests = plan(400, lambda n: BATCH if n in (50, 150, 250) else STANDARD)
    watch = watched(requests)
    for request in requests:
        watch.record(sample(request))
    watch.finish()

    assert {group.name: group.required for group in watch.groups} == {
        "standard": True,
        "batch": False,
        "all": True,
    }
    assert watch.verdict is Verdict.HELD


def test_what_ends_after_the_decision_is_not_judged():
    """The decision cuts open requests off: they are no misses."""
    requests = plan(400)
    watch = watched(requests)
    for request in requests[:300]:
        watch.record(sample(request))
    watch.tick(30.0, ())
    watch.record(sample(requests[300], outcome=LoadOutcome.BROKEN, code="unfinished"))

    assert watch.verdict is Verdict.HELD
    assert watch.misses == {}


def test_a_probe_is_timed_by_the_slowest_promise():
    """Warm-up ten limits, blocks half a limit; a faultless server at 95 % needs 68 blocks, each of two."""
    test = test_for([Slo(ttft_s=0.8), Slo(ttft_s=3.0), Slo()], 0.95, 0.95)

    assert (test.warmup_s, test.block_s) == (30.0, 1.5)
    assert test.needed_s(100.0) == pytest.approx(30 + 136 * 1.5)
    assert test.needed_s(0.5) == pytest.approx(30 + 136 * 4)
