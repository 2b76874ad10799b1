"""What a gateway publishes is what its requests hold and wait for."""

from serving.schedule.admit import Admission
from serving.schedule.lease import Need
from serving.schedule.pool import Report
from serving.schedule.priority import Rules, Treatment
from serving.schedule.shared.demand import demand_of
from serving.schedule.shared.fair import Demand
from toolkit.core.sample import SloClass, WorkloadClass


def admission(**rules: object) -> Admission:
    made = Admission(
        Rules({slo: Treatment(weight=2.0) for slo in SloClass}, 10, 10, lease_cap=0.5, **rules)  # type: ignore[arg-type]
    )
    made.serve({"decode-0": 1.0, "decode-1": 1.0}, 0.0)
    made.told("decode-0", Report(3000, 10, 1, 0, 0), 0.0)
    made.told("decode-1", Report(1000, 10, 1, 0, 0), 0.0)
    return made


def offer(made: Admission, key: str, tokens: int, workload: WorkloadClass = WorkloadClass.TEXT_ONLY) -> None:
    made.arrive(key, SloClass.STANDARD, 0.0, 100.0)
    made.prepared(key, workload, tokens, 0.0, Need(tokens))


def test_what_is_held_counts_where_it_is_and_what_waits_by_the_sizes_of_the_pools() -> None:
    made = admission()
    offer(made, "inside", 1200)
    made.bound({}, float("inf"), 0.0)
    offer(made, "waits", 400)

    assert demand_of(made, 7.0) == {
        "decode-0": Demand({"standard": 120 + 30}, largest=40, waited_s=7.0),
        "decode-1": Demand({"standard": 10}, largest=40, waited_s=7.0),
    }


def test_what_a_pool_may_never_give_is_not_asked_of_it() -> None:
    made = admission()
    made.bound({}, float("inf"), 0.0)
    offer(made, "large", 1400)

    assert demand_of(made, 1.0)["decode-1"] == Demand({}, 0, 1.0)


def test_where_there_are_kinds_of_requests_they_are_the_classes() -> None:
    made = admission(kinds={WorkloadClass.TEXT_ONLY: "text"}, shares={"text": 3.0, "images": 1.0})
    offer(made, "inside", 1000)

    assert demand_of(made, 0.0)["decode-0"].by_class == {"text": 100}
    assert made.weights == {"text": 3.0, "images": 1.0}
    assert admission().weights["standard"] == 2.0


def test_pages_that_are_bound_are_not_leased_and_those_beyond_are_told_of_newest_first() -> None:
    """A bound ends with its time, at the next event, whatever it is."""
    made = admission()
    made.bound({"decode-0": 100, "decode-1": 0}, 5.0, 0.0)
    for key in ("first", "second", "third"):
        offer(made, key, 500)
    assert made.running == 2

    assert made.leases.over({"decode-0": 60}) == ["second"]
    assert made.leases.over({"decode-0": 100}) == []
    made.leave("second", 5.0)
    assert made.running == 1
    made.check()
