"""What locust is told and how a plan is split: pure, without locust."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from toolkit.core.plan import Plan, PlannedRequest
from toolkit.core.sample import SloClass, WorkloadClass
from workloads.compose import compose
from workloads.locust.curve import stretches_of, users_at
from workloads.locust.entries import CHAT, TTFT, entries
from workloads.locust.split import LOST, Share, lost, shares
from workloads.locust.task import Task, read_task
from workloads.profile import load_profile
from workloads.record import LoadOutcome, LoadSample
from workloads.shape import Stretch
from workloads.surge_report import surge_profile

SURGE = surge_profile(load_profile("surge"), peak=50.0, time_scale=1.0).stretches()


def plan_of(count, concurrency=0):
    return Plan(
        "p",
        1,
        10.0,
        tuple(
            PlannedRequest(i, i * 0.1, WorkloadClass.TEXT_ONLY, SloClass.STANDARD, "x", (), 4)
            for i in range(count)
        ),
        concurrency,
    )


@pytest.mark.parametrize(
    ("at_s", "users"),
    [
        (-1.0, 0),
        (0.0, 40),
        (599.9, 40),
        (600.0, 100),
        (899.9, 100),
        (900.0, 40),
        (2099.9, 40),
        (2100.0, None),
        (9999.0, None),
    ],
)
def test_a_surge_is_80_then_200_then_80_percent_of_its_peak(at_s, users):
    """Users are the intended requests per second; the step is a step; None after the last phase."""
    assert users_at(SURGE, at_s) == users


@pytest.mark.parametrize(("rate", "users"), [(0.2, 1), (1.4, 1), (1.5, 2), (2.5, 3), (99.4, 99), (0.0, 0)])
def test_rates_are_rounded_to_whole_users(rate, users):
    """Half up, and never to none while something is asked."""
    assert users_at((Stretch("", 0.0, 1.0, rate),), 0.5) == users


def test_every_profile_has_a_curve():
    """Soak is one stretch of its rate; a closed loop is as many users as requests are open."""
    soak = load_profile("soak")

    assert {users_at(stretches_of(soak, plan_of(1)), t) for t in (0.0, soak.duration_s - 1)} == {
        users_at(soak.stretches(), 0.0)
    }
    assert users_at(stretches_of(soak, plan_of(9, concurrency=7)), 0.0) == 7


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_the_shares_are_the_plan(workers):
    """Every request is one worker's and no other's."""
    plan = compose(load_profile("smoke"))

    found = [r.index for s in shares(plan, workers) for r in plan.requests if s.has(r.index)]

    assert sorted(found) == [request.index for request in plan.requests]


def test_a_closed_loop_is_split_without_a_remainder():
    """The workers' open requests add up to the loop's; nobody gets none, which would mean an open loop."""
    for workers in range(1, 9):
        parts = [s.concurrency(5) for s in shares(plan_of(50, concurrency=5), workers)]
        assert sum(parts) == 5
        assert min(parts) >= 1


def test_what_no_worker_told_is_a_miss():
    """Requests of a lost share that were due in the window count as offered and unsent; later ones never were."""
    missing = list(lost(plan_of(50), Share(1, 2), recorded=range(10), window_s=2.0))

    assert [sample.index for sample in missing] == list(range(11, 20, 2))
    assert {(sample.outcome, sample.code) for sample in missing} == {(LoadOutcome.UNSENT, LOST)}


def test_a_task_survives_the_pipe():
    """The core reads what the worker wrote, to the last byte of the plan."""
    import io

    plan = plan_of(3)
    task = Task("http://h", "m", share_index=1, share_of=2, extra_body={"temperature": 0})

    read, plan_read = read_task(io.BytesIO(task.to_bytes(plan.to_json()) + b"go\n"))

    assert (read, plan_read) == (task, plan)
    assert read.share == Share(1, 2)
    with pytest.raises(EOFError):
        read_task(io.BytesIO(task.to_bytes(plan.to_json())[:-5]))


def test_a_record_is_an_entry_for_the_answer_and_one_for_its_first_token():
    """Named by class, in ms from the intended arrival; what is not completed is a failure of the answer's entry."""
    sample = LoadSample(
        1,
        WorkloadClass.HIGH_RES,
        SloClass.STANDARD,
        intended_s=1.0,
        outcome=LoadOutcome.COMPLETED,
        ended_s=3.0,
        sent_s=1.5,
        token_times_s=(2.0, 2.5),
    )
    refused = LoadSample(
        2,
        WorkloadClass.TEXT_ONLY,
        SloClass.STANDARD,
        intended_s=1.0,
        outcome=LoadOutcome.REFUSED,
        ended_s=1.25,
        code="queue_full",
    )

    chat, ttft = entries(sample.to_dict())
    (failed,) = entries(refused.to_dict())

    assert (chat.request_type, chat.name, chat.response_time, chat.exception) == (
        CHAT,
        "high_res",
        2000,
        None,
    )
    assert (ttft.request_type, ttft.name, ttft.response_time) == (TTFT, "high_res", 1000)
    assert (failed.request_type, failed.name, failed.response_time) == (CHAT, "text_only", 250)
    assert str(failed.exception) == "refused: queue_full"
    assert {e.name for e in entries(replace(sample, attempt=1).to_dict())} == {"high_res again"}


@pytest.mark.slow
def test_locust_stays_out_of_every_process_but_its_own():
    """Importing the command line, a bench run or the request core brings neither locust nor gevent's patches."""
    code = (
        "import json, sys, toolkit.cli, workloads.bench, workloads.locust, workloads.locust.core, workloads.locust.launch;"
        "print(json.dumps([m for m in ('gevent', 'locust', 'zmq', 'flask') if m in sys.modules]))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == []
