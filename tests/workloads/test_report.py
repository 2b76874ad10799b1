"""The summary counts every planned request, the verdict judges the generator, and no table shows what it cannot know."""

import json
from dataclasses import replace

import pytest

from toolkit.core.sample import SloClass, WorkloadClass
from toolkit.core.slo import DEFAULT_SLOS
from workloads.record import LoadOutcome, LoadSample
from workloads.report.render import (
    MEASURES,
    RunFacts,
    cells,
    headline,
    level_cells,
    notes,
    remarks,
    to_json,
    to_markdown,
    verdict,
)
from workloads.report.summary import Summary, summarise
from workloads.scrape import LEVELS, Level

FACTS = RunFacts("smoke", "http://127.0.0.1:1", "tiny", 1, "poisson", 2.0, 1.7e9, "0.1.0")
TEXT, IMAGE = WorkloadClass.TEXT_ONLY, WorkloadClass.IMAGE_SHORT


def done(index, at=0.0, slip=0.001, ttft=0.2, gap=0.01, tokens=5, kind=TEXT, slo=SloClass.STANDARD):
    sent = at + slip
    times = tuple(sent + ttft + n * gap for n in range(tokens))
    end = times[-1] if times else sent
    return LoadSample(index, kind, slo, at, LoadOutcome.COMPLETED, end, sent, sent, times, tokens)


def bad(index, code, outcome=LoadOutcome.REFUSED, at=0.0, sent=0.0, kind=TEXT):
    return LoadSample(index, kind, SloClass.STANDARD, at, outcome, at + 0.1, sent, code=code)


def summary(samples, window_s=10.0, **more) -> Summary:
    asked = {"measured_s": 12.0, "interrupted": False, "cpu_share": 0.1, **more}
    return summarise(samples, DEFAULT_SLOS, window_s, **asked)


def test_failures_are_offered_and_not_good():
    """Refused, broken and unsent requests miss their SLO; they do not leave the denominator."""
    samples = [
        done(0),
        bad(1, "queue_full"),
        bad(2, "truncated", LoadOutcome.BROKEN),
        bad(3, "unsent", LoadOutcome.UNSENT, sent=None),
    ]

    total = summary(samples).total

    assert (total.offered, total.sent, total.completed, total.failures) == (4, 3, 1, 3)
    assert total.failed == {"queue_full": 1, "truncated": 1, "unsent": 1}
    assert (total.attainment, total.goodput) == (0.25, 0.1)


def test_a_degraded_answer_is_told_apart_and_keeps_no_promise():
    """Nobody buys goodput with smaller images or another endpoint: such answers are counted, and not as kept."""
    made = summary([done(0), replace(done(1), degraded="fallback;why=queue_full")])

    assert (made.total.completed, made.total.degraded, made.total.degraded_kept) == (2, 1, 1)
    assert (made.total.attainment, made.total.attainment_sent, made.total.goodput) == (0.5, 0.5, 0.1)
    assert any("1 completed answers, 1 within their limits" in line for line in remarks(FACTS, made))


def test_a_late_generator_counts_against_the_promise():
    """TTFT from the intended arrival includes our own lateness; from the send it does not."""
    late = summary([done(0, slip=2.9, ttft=0.2)]).total
    slow = summary([done(0, slip=0.0, ttft=3.1)]).total

    assert late.ttft.p50.estimate == pytest.approx(3.1)
    assert late.ttft_sent.p50.estimate == pytest.approx(0.2)
    assert late.attainment == slow.attainment == 0.0


def test_slow_tokens_break_the_promise_but_not_the_ttft_one():
    """Attainment is TTFT and ITL together; both are told."""
    total = summary([done(0, gap=0.3), done(1)]).total

    assert (total.attainment, total.ttft_attainment) == (0.5, 1.0)


def test_classes_are_judged_by_their_own_promise():
    """The same answer keeps the standard promise and breaks the realtime one."""
    samples = [done(0, ttft=1.0), done(1, ttft=1.0, kind=IMAGE, slo=SloClass.REALTIME)]

    groups = {group.name: group.attainment for group in summary(samples).groups}

    assert groups == {"text_only": 1.0, "image_short": 0.0}


def test_tokens_per_second_are_of_the_measured_time():
    """Tokens that came after the window count, over the time that they took."""
    assert summary([done(0, tokens=24)]).total.tokens_per_s == pytest.approx(2.0)


def test_an_empty_answer_is_told():
    """It completed, has no TTFT, and misses its promise."""
    result = summary([done(0, tokens=0), done(1)])

    assert (result.total.empty, result.total.failures, result.total.attainment) == (1, 0, 0.5)
    assert any("no token" in line for line in remarks(FACTS, result))


@pytest.mark.parametrize(
    ("samples", "saturated"),
    [
        ([done(n, at=n / 100) for n in range(100)], False),
        ([done(n, at=n / 100, slip=0.029) for n in range(100)], False),
        ([done(n, at=n / 100, slip=0.031) for n in range(100)], True),
        ([done(n, at=n / 100, slip=0.006, slo=SloClass.BATCH) for n in range(100)], True),
        ([done(n, at=n / 100, slip=0.0079, slo=SloClass.REALTIME) for n in range(100)], False),
        (
            [done(n, at=n / 100) for n in range(98)] + [bad(98, "unsent", LoadOutcome.UNSENT, sent=None)] * 2,
            True,
        ),
        ([], False),
    ],
    ids=[
        "on time",
        "under 1 % of 3 s",
        "over it",
        "over 5 ms without a TTFT",
        "under 1 % of 0.8 s",
        "2 % unsent",
        "nothing",
    ],
)
def test_the_generator_judges_itself(samples, saturated):
    """Saturated: slip p99 over max(5 ms, 1 % of the TTFT limit), or under 99 % delivered."""
    generator = summary(samples).generator

    assert generator.saturated is saturated
    assert ("generator saturated" in verdict(generator)) is saturated


def test_requests_sent_after_the_window_are_not_delivered():
    """A backlog that is worked off later was not the load that was asked for."""
    samples = [done(n, at=9.9, slip=1.0) for n in range(10)]

    assert summary(samples).generator.delivered == 0.0


def test_few_samples_are_shown_as_bounds():
    """A p95 of 129 requests has >= before it, of 130 it is a value, and of one there is none."""
    column = MEASURES.index("TTFT p95 ms")

    def shown(count: int) -> str:
        return cells(summary([done(n) for n in range(count)]).total)[column]

    assert shown(129) == ">= 201"
    assert shown(130) == "201"
    assert shown(1) == "-"


@pytest.mark.parametrize(
    ("count", "p95", "p99"), [(129, False, False), (661, True, False), (662, True, True)]
)
def test_report_json_says_which_percentiles_are_values(count, p95, p99):
    """A p99 of 661 requests is a bound in the JSON too, of 662 a value."""
    ttft = to_json(FACTS, summary([done(n) for n in range(count)]))["total"]["ttft_s"]

    assert (ttft["p95"]["firm"], ttft["p99"]["firm"]) == (p95, p99)


@pytest.mark.parametrize(
    ("slo", "ttft", "gap", "kept"),
    [
        (SloClass.REALTIME, 0.79, 0.049, 1.0),
        (SloClass.REALTIME, 0.81, 0.049, 0.0),
        (SloClass.REALTIME, 0.79, 0.051, 0.0),
        (SloClass.STANDARD, 2.99, 0.099, 1.0),
        (SloClass.STANDARD, 3.01, 0.099, 0.0),
        (SloClass.STANDARD, 2.99, 0.101, 0.0),
        (SloClass.BATCH, 90.0, 2.0, 1.0),
    ],
)
def test_the_promises_are_those_of_the_classes(slo, ttft, gap, kept):
    """Realtime 800 ms and 50 ms between tokens, standard 3 s and 100 ms, batch neither; TTFT from the intended arrival."""
    assert summary([done(0, slip=0.0, ttft=ttft, gap=gap, slo=slo)]).total.attainment == kept


def test_the_report_is_json_and_markdown():
    """report.json holds plain numbers under stable keys; report.md a row per class and one for all."""
    result = summary([done(0), done(1, kind=IMAGE), bad(2, "queue_full", kind=IMAGE)])

    table = json.loads(json.dumps(to_json(FACTS, result), allow_nan=False))
    page = to_markdown(FACTS, result)

    assert table["run"]["seed"] == 1
    assert set(table["classes"]) == {"text_only", "image_short"}
    assert table["total"]["failed"] == {"queue_full": 1}
    assert table["classes"]["text_only"]["ttft_s"]["p50"]["firm"] is False
    assert table["generator"]["saturated"] is False
    assert [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| ")][2:] == [
        "| text_only",
        "| image_short",
        "| all",
    ]
    assert "image_short failed: queue_full 1" in page


def test_an_interrupted_run_says_so():
    """Ctrl-C is no silent success."""
    result = summary([done(0)], interrupted=True)

    assert to_json(FACTS, result)["interrupted"] is True
    assert "interrupted" in to_markdown(FACTS, result)


def test_every_report_says_what_is_known_of_the_generators_own_error():
    """No check on this machine is told as such, in the JSON too."""
    result = summary([done(0)])

    assert "not checked on this machine" in to_markdown(FACTS, result)
    assert to_json(FACTS, result)["generator"]["self_check"] is None


def test_goodput_is_told_from_both_clocks():
    """A generator that was late shows what the server kept nevertheless; what never came back keeps nothing."""
    total = summary([done(0, slip=2.9, ttft=0.2), bad(1, "truncated", LoadOutcome.BROKEN)]).total

    assert (total.attainment, total.attainment_sent) == (0.0, 0.5)
    assert (total.goodput, total.goodput_sent) == (0.0, pytest.approx(0.1))


@pytest.mark.parametrize(
    ("facts", "begins"),
    [
        (FACTS, "poisson arrivals at 2/s for 10 s, sent 0.2/s, seed 1"),
        (
            replace(FACTS, offer="trace azure x2, 12.3/s in the mean"),
            "trace azure x2, 12.3/s in the mean for 10 s",
        ),
        (
            replace(FACTS, offer="poisson arrivals, phases 80/200/80 % of a peak of 10/s"),
            "poisson arrivals, phases 80",
        ),
        (replace(FACTS, concurrency=8), "closed loop of 8 for 10 s, sent 0.2/s"),
    ],
    ids=["rate", "trace", "phases", "closed"],
)
def test_the_headline_says_what_was_offered_and_what_was_sent(facts, begins):
    """The profile's rate is told only where it was the offer; the rate that was sent always."""
    assert headline(facts, summary([done(0), done(1)])).startswith(begins)


def test_refused_image_addresses_are_told_with_their_remedy():
    """The exact setting, with the host of this run's image server; nothing for another failure, or images inline."""
    blocked = summary([done(0), bad(1, "image_url_blocked", kind=IMAGE)])
    by_url = replace(FACTS, images_url="http://127.0.0.1:8790")
    told = "--set 'access.allowed_hosts=[\"127.0.0.1:8790\"]'"

    assert any(told in line for line in remarks(by_url, blocked))
    assert told in to_markdown(by_url, blocked)
    assert not any("allowed_hosts" in line for line in remarks(FACTS, blocked))
    assert not any("allowed_hosts" in line for line in remarks(by_url, summary([bad(0, "queue_full")])))


def test_a_model_that_nobody_serves_is_named():
    """What was asked for and what the target lists; nothing where the model is there, or for another failure."""
    failed = summary([bad(0, "not_found")])
    wrong = replace(FACTS, model="foo", served=("tiny", "large"))
    told = "not_found: asked for model foo; http://127.0.0.1:1/v1/models lists tiny, large"

    assert told in remarks(wrong, failed)
    assert told not in remarks(wrong, summary([bad(0, "queue_full")]))
    assert not any("lists" in line for line in remarks(replace(wrong, model="large"), failed))


def test_the_limits_behind_the_shares_are_told_once():
    """Those of the SLO classes in the table, and no other."""
    facts = replace(FACTS, slos=dict(DEFAULT_SLOS))

    result = summary([done(0), done(1, slo=SloClass.BATCH), done(2, slo=SloClass.STANDARD)])

    assert notes(facts, result)[-1] == "SLO limits: standard TTFT 3000 ms, ITL P95 100 ms; batch no limit."
    assert to_markdown(facts, result).count("SLO limits") == 1
    assert json.loads(json.dumps(to_json(facts, result)))["run"]["slos"]["standard"]["ttft_s"] == 3.0


def test_a_level_says_what_it_counts():
    """Requests and shares are told apart in each row."""
    rows = [level_cells(Level("target", what, 2, 0.5, 1.0))[1] for what, _ in LEVELS]

    assert rows == ["requests waiting", "requests in flight", "share of KV tokens in use"]


def test_a_closed_loop_is_called_one():
    """No rate was asked, so none is shown."""
    facts = replace(FACTS, concurrency=4)

    assert headline(facts, summary([done(0)])).startswith("closed loop of 4 for 10 s")
    assert not any("asked" in line for line in remarks(facts, summary([done(0)])))
