"""The simulated engine's scheduler, on a made-up clock."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engines.simulated.effects import Deliver, Ended, Failed, Limits, Token
from serving.engines.simulated.faults import Faults
from serving.engines.simulated.model import CPU_TINY, PRESETS
from serving.engines.simulated.scheduler import DuplicateRid, Scheduler
from serving.engines.simulated.state import TABLE, Event, IllegalEvent, Job, State
from tests.serving.engines.simulated.rig import LIMITS, Pair, job


def faulty(**fields: object) -> Faults:
    return Faults.of(fields)


def test_a_pair_answers() -> None:
    """Prefill says one token, decode all of them, and nothing is left behind."""
    pair = Pair()
    pair.ask("a", tokens=5)
    pair.run(1.0)

    assert pair.tokens("a-p") == 1 and pair.end("a-p") == Ended("a-p", "length", 1)
    assert pair.tokens("a-d") == 5 and pair.end("a-d") == Ended("a-d", "length", 5)
    assert pair.prefill.live == pair.decode.live == 0
    pair.check()


def test_time_follows_the_formulas() -> None:
    """First token after prefill and transfer, then one per step."""
    pair = Pair()
    pair.ask("a", tokens=3, prompt=200)
    pair.run(1.0)

    first = CPU_TINY.prefill_s + CPU_TINY.prefill(200) + CPU_TINY.transfer(200)
    at = [one.at for one in pair.heard["a-d"] if isinstance(one, Token)]
    assert at[0] == pytest.approx(first)
    assert at[1] - at[0] == pytest.approx(CPU_TINY.step(1, 201))
    assert at[2] - at[1] == pytest.approx(CPU_TINY.step(1, 202))


def test_a_late_caller_changes_nothing_but_when_it_is_seen() -> None:
    """The instants of a decode that nobody looked at for a second are those of one that was watched."""
    one = Scheduler("unified", CPU_TINY, LIMITS, 0.0)
    one.submit(job("a", tokens=6), 0.0)
    while (due := one.next_at()) is not None:
        one.advance(due)
    watched = one.take_effects()
    other = Scheduler("unified", CPU_TINY, LIMITS, 0.0)
    other.submit(job("a", tokens=6), 0.0)
    other.advance(5.0)

    assert other.take_effects() == watched


def test_a_long_prompt_is_computed_in_chunks() -> None:
    """Later chunks also look at the earlier ones, so together they cost what one would, and a start each."""
    whole = CPU_TINY.prefill(3000)
    halves = CPU_TINY.prefill(1500) + CPU_TINY.prefill(1500, seen=1500)
    engine = Scheduler("unified", CPU_TINY, replace(LIMITS, chunk_tokens=1500), 0.0)
    engine.submit(job("a", tokens=1, prompt=3000), 0.0)
    engine.advance(9.0)
    (token, _) = engine.take_effects()

    assert halves == pytest.approx(whole)
    assert isinstance(token, Token) and token.at == pytest.approx(whole + 2 * CPU_TINY.prefill_s)


def test_a_live_rid_is_not_taken_twice() -> None:
    """And can be used again once it has ended."""
    engine = Scheduler("unified", CPU_TINY, LIMITS, 0.0)
    engine.submit(job("a"), 0.0)

    with pytest.raises(DuplicateRid):
        engine.submit(job("a"), 0.0)
    engine.advance(5.0)
    engine.submit(job("a"), 5.0)


def test_abort_matches_prefixes_of_a_rid_it_knows() -> None:
    """SGLang's tokenizer drops what it does not know; its scheduler then matches by prefix."""
    engine = Scheduler("unified", CPU_TINY, LIMITS, 0.0)
    for rid in ("req-1", "req-10", "req-2"):
        engine.submit(job(rid, tokens=100), 0.0)
    engine.abort("req-", 0.0)
    assert engine.live == 3
    engine.abort("req-1", 0.0)

    ended = [one for one in engine.take_effects() if isinstance(one, Ended)]
    assert [(one.rid, one.reason) for one in ended] == [("req-1", "abort"), ("req-10", "abort")]
    assert engine.live == 1


def test_an_abort_before_the_first_token_is_a_failed_transfer() -> None:
    """500 on the leg that was told; decode's withdrawal ends prefill's too."""
    pair = Pair()
    pair.ask("a", prompt=2000)
    pair.run(0.01)
    pair.decode.abort("a-d", pair.now)
    pair.run(1.0)

    failed = pair.end("a-d")
    assert isinstance(failed, Failed) and failed.status == 500
    assert "KVTransferError(bootstrap_room=1): Aborted by AbortReq." in failed.message
    pair.check()


def test_an_abort_in_mid_answer_ends_it_early() -> None:
    """finish_reason abort, pages free."""
    pair = Pair()
    pair.ask("a", tokens=500)
    pair.run(1.0)
    said = pair.tokens("a-d")
    pair.decode.abort("a-d", pair.now)
    pair.run(2.0)

    assert 0 < said < 500
    assert pair.end("a-d") == Ended("a-d", "abort", said)
    pair.check()


@pytest.mark.parametrize(
    ("leg", "words"), [("prefill", "KVPoll.Bootstrapping"), ("decode", "KVPoll.WaitingForInput")]
)
def test_a_leg_alone_waits_for_its_timeout(leg: str, words: str) -> None:
    """Then it fails and holds nothing."""
    limits = replace(LIMITS, bootstrap_timeout_s=60, waiting_timeout_s=60)
    engine = Scheduler(leg, CPU_TINY, limits, 0.0)  # type: ignore[arg-type]
    engine.submit(job("a"), 0.0)
    engine.advance(59.9)
    assert engine.live == 1
    engine.advance(60.0)

    failed = engine.take_effects()[-1]
    assert isinstance(failed, Failed) and words in failed.message
    engine.check()


def test_a_failed_transfer_blacklists_the_decode_for_30_s() -> None:
    """Every later request to it fails at once, until a probe finds it alive; the recovery is counted."""
    pair = Pair()
    pair.prefill.set_faults(faulty(transfer_failure_rate=1.0), 0.0)
    pair.ask("a")
    pair.run(1.0)
    pair.prefill.set_faults(Faults(), 1.0)
    pair.ask("b", room=2)
    pair.run(29.0)
    assert isinstance(pair.end("a-d"), Failed) and isinstance(pair.end("b-d"), Failed)
    assert pair.prefill.recoveries == 0
    pair.run(31.0)
    pair.ask("c", room=3)
    pair.run(32.0)

    assert pair.end("c-d") == Ended("c-d", "length", 4)
    assert pair.prefill.recoveries == 1
    pair.check()


def test_an_injected_poll_failure_fails_its_request_alone() -> None:
    """SGLang's own fault hook: both legs fail, the session stays good."""
    pair = Pair()
    pair.prefill.set_faults(faulty(poll_failure_rate=1.0), 0.0)
    pair.ask("a")
    pair.run(1.0)
    pair.prefill.set_faults(Faults(), 1.0)
    pair.ask("b", room=2)
    pair.run(2.0)

    for leg in "pd":
        failed = pair.end(f"a-{leg}")
        assert isinstance(failed, Failed) and "transfer failed" in failed.message
    assert pair.end("b-d") == Ended("b-d", "length", 4)
    pair.check()


def test_a_dead_decode_fails_the_transfer_and_later_probes() -> None:
    """30 s, then 60 s to the next look."""
    pair = Pair()
    pair.ask("a")
    pair.run(0.01)
    pair.alive = False
    pair.run(40.0)
    pair.alive = True
    assert isinstance(pair.end("a-p"), Failed)
    pair.run(85.0)
    assert pair.prefill.recoveries == 0
    pair.run(95.0)
    assert pair.prefill.recoveries == 1


def test_a_stuck_transfer_outlives_decodes_timeout() -> None:
    """It keeps its pages until it is aborted, and 30 s longer, since somebody may still write to them."""
    pair = Pair(limits=replace(LIMITS, waiting_timeout_s=5))
    pair.prefill.set_faults(faulty(stuck_transferring=True), 0.0)
    pair.ask("a")
    pair.run(100.0)
    assert pair.decode.live == 1
    pair.decode.abort("a-d", pair.now)
    assert pair.decode.live == 0
    assert pair.decode.loads(pair.now + 1).used_tokens == 100
    pair.run(131.0)
    assert pair.decode.loads(pair.now + 1).used_tokens == 0
    pair.check()


def test_two_samples_in_one_room_hang() -> None:
    """SGLang 0.5.23 with n > 1 under PD: prefill ends both, decode answers one and waits for the other."""
    pair = Pair()
    for number in range(2):
        pair.prefill.submit(job(f"p{number}"), 0.0)
        pair.decode.submit(job(f"d{number}"), 0.0)
    pair.run(60.0)

    assert {pair.end("p0"), pair.end("p1")} == {Ended("p0", "length", 1), Ended("p1", "length", 1)}
    assert sorted(rid for rid in ("d0", "d1") if pair.end(rid)) in (["d0"], ["d1"])


def test_room_zero_never_arrives() -> None:
    """Zero means absent to decode; prefill notices nothing."""
    pair = Pair()
    pair.ask("a", room=0)
    pair.run(200.0)

    assert pair.end("a-p") == Ended("a-p", "length", 1)
    assert pair.end("a-d") is None


def test_a_fake_bootstrap_needs_no_peer() -> None:
    """Each leg alone."""
    for role in ("prefill", "decode"):
        engine = Scheduler(role, CPU_TINY, LIMITS, 0.0)  # type: ignore[arg-type]
        engine.submit(job("a", tokens=1, fake=True), 0.0)
        engine.advance(1.0)
        assert Ended("a", "length", 1) in engine.take_effects()
        engine.check()


def test_a_full_pool_retracts_the_shortest_answer_and_brings_it_back() -> None:
    """Nobody loses a token."""
    engine = Scheduler("decode", CPU_TINY, replace(LIMITS, max_total_tokens=300), 0.0)
    for number in range(2):
        engine.submit(job(f"r{number}", tokens=120, prompt=100, fake=True), 0.0)
    engine.advance(100.0)
    effects = engine.take_effects()

    assert any(one.metric == "num_retracted_requests_total" for one in engine.take_observations())
    for number in range(2):
        assert [one.number for one in effects if isinstance(one, Token) and one.rid == f"r{number}"] == [
            *range(1, 121)
        ]
    engine.check()


def test_an_answer_that_fills_the_pool_alone_fails() -> None:
    """There is nobody to retract."""
    engine = Scheduler("decode", CPU_TINY, replace(LIMITS, max_total_tokens=120), 0.0)
    engine.submit(job("a", tokens=100, prompt=100, fake=True), 0.0)
    engine.advance(100.0)

    failed = engine.take_effects()[-1]
    assert isinstance(failed, Failed) and "Out of memory" in failed.message
    engine.check()


def test_loads_are_as_stale_as_the_real_ones() -> None:
    """While decode runs, a look shows the state of the last fifteenth step."""
    engine = Scheduler("decode", CPU_TINY, LIMITS, 0.0)
    engine.submit(job("a", tokens=1000, prompt=50, fake=True), 0.0)
    shown = set()
    for _ in range(31):
        due = engine.next_at()
        assert due is not None
        engine.advance(due)
        shown.add(engine.loads(due).used_tokens)

    assert shown == {0, 50 + 1 + 15, 50 + 1 + 30}


def test_a_frozen_scheduler_does_nothing_and_catches_up_nothing() -> None:
    """Aborts that came meanwhile are heard afterwards; the rest goes on from where it stood."""
    engine = Scheduler("unified", CPU_TINY, LIMITS, 0.0)
    engine.submit(job("a", tokens=50), 0.0)
    engine.submit(job("b", tokens=50), 0.0)
    engine.advance(0.2)
    engine.take_effects()
    engine.set_faults(faulty(freeze=True), 0.2)
    engine.abort("b", 0.3)
    engine.advance(9.0)
    assert engine.take_effects() == [] and engine.next_at() is None
    engine.set_faults(Faults(), 10.0)
    effects = engine.take_effects()

    assert Ended("b", "abort", 0) in [replace(one, made=0) for one in effects if isinstance(one, Ended)]
    tokens = [one for one in effects if isinstance(one, Token)]
    assert len(tokens) <= 1 and all(one.at >= 10.0 for one in tokens)


def test_leaked_pages_shrink_the_pool_until_a_flush() -> None:
    """A flush is refused while anything runs."""
    pair = Pair()
    pair.decode.set_faults(faulty(kv_leak_pages_per_request=10), 0.0)
    for number in range(1, 4):
        pair.ask(f"a{number}", room=number)
    pair.run(0.03)
    assert not pair.decode.flush()
    pair.run(5.0)

    assert pair.decode.loads(9.0).used_tokens == 30
    assert pair.decode.flush()
    assert pair.decode.loads(99.0).used_tokens == 0


def test_slow_computing_is_slower_by_its_factor() -> None:
    """Everything the device does."""
    ends = []
    for factor in (1.0, 4.0):
        engine = Scheduler("unified", CPU_TINY, LIMITS, 0.0)
        engine.set_faults(faulty(slow_factor=factor), 0.0)
        engine.submit(job("a", tokens=20), 0.0)
        engine.advance(100.0)
        ends.append(max(one.at for one in engine.take_effects() if isinstance(one, Token)))

    assert ends[1] == pytest.approx(4 * ends[0])


def test_a_dead_prefill_fails_all_that_waited_for_it() -> None:
    """And nobody else."""
    engine = Scheduler("decode", CPU_TINY, LIMITS, 0.0)
    engine.submit(job("a", room=1), 0.0)
    engine.submit(job("b", room=2, bootstrap="other:1"), 0.0)
    engine.lost("p:1", "Lost connection with prefill instance (bootstrap_addr: p:1)", 1.0)

    (failed,) = [one for one in engine.take_effects() if isinstance(one, Failed)]
    assert failed.rid == "a" and "Lost connection" in failed.message
    assert engine.live == 1


def test_a_pause_in_place_loses_nothing() -> None:
    """Nothing is computed meanwhile."""
    engine = Scheduler("unified", CPU_TINY, LIMITS, 0.0)
    engine.submit(job("a", tokens=10), 0.0)
    engine.pause("in_place", 0.0)
    engine.advance(50.0)
    said = len(engine.take_effects())
    engine.resume(50.0)
    engine.advance(60.0)

    assert said <= 1
    assert engine.take_effects()[-1] == Ended("a", "length", 10)


def test_an_unknown_event_raises_and_changes_nothing() -> None:
    """For every pair the table does not have."""
    for state in State:
        for event in Event:
            if (state, event) not in TABLE:
                one = Job("a", 1, 1, state=state)
                with pytest.raises(IllegalEvent):
                    one.on(event, 1.0)
                assert one.state is state


ASKS = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.integers(1, 400),
        st.floats(0, 0.3),
        st.sampled_from(["", "", "", "p", "d", "both"]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(asks=ASKS, rate=st.sampled_from([0.0, 0.3]), page_size=st.sampled_from([1, 16]))
def test_every_request_ends_once_and_pages_are_conserved(
    asks: list[tuple[int, int, float, str]], rate: float, page_size: int
) -> None:
    """With aborts on either leg at any time, and failing transfers."""
    limits = Limits(max_total_tokens=1024, page_size=page_size, max_running=4, reserved_tokens=0,
                    bootstrap_timeout_s=20, waiting_timeout_s=20)  # fmt: skip
    pair = Pair(limits=limits)
    pair.prefill.set_faults(faulty(transfer_failure_rate=rate, seed=7), 0.0)
    for number, (tokens, prompt, wait, abort) in enumerate(asks, 1):
        pair.ask(f"{number:03}", tokens, prompt, room=number)
        pair.run(pair.now + wait)
        if abort in ("p", "both"):
            pair.prefill.abort(f"{number:03}-p", pair.now)
        if abort in ("d", "both"):
            pair.decode.abort(f"{number:03}-d", pair.now)
        pair.check()
    pair.run(pair.now + 100)

    for number in range(1, len(asks) + 1):
        for leg in "pd":
            ends = [one for one in pair.heard[f"{number:03}-{leg}"] if not isinstance(one, Token)]
            assert len(ends) == 1
    assert pair.prefill.live == pair.decode.live == 0
    pair.check()


@pytest.mark.parametrize("name", PRESETS)
def test_presets_grow_with_the_work(name: str) -> None:
    """More tokens, more time; a step grows with the batch and the context."""
    costs = PRESETS[name]

    assert costs.prefill(2000) > 2 * costs.prefill(1000) * 0.99 > 0
    assert costs.step(2, 100) > costs.step(1, 100) and costs.step(1, 200) > costs.step(1, 100)
    assert costs.transfer(1000) > costs.transfer(10) > 0
    assert costs.encode(0) == 0 < costs.encode(1)


def test_a_slow_transfer_says_that_it_has_begun() -> None:
    """So that decode's own timeout lets it be."""
    pair = Pair(limits=replace(LIMITS, waiting_timeout_s=5))
    pair.prefill.set_faults(faulty(transfer_delay_s=20), 0.0)
    pair.ask("a")
    pair.run(30.0)

    assert [one.news for one in pair.carried if isinstance(one, Deliver)] == ["started", "done"]
    assert pair.end("a-d") == Ended("a-d", "length", 4)


def test_transfers_under_way_together_share_the_link() -> None:
    """From the first byte on the link is busy without a pause, so the last arrives as soon as both can be through."""
    costs = replace(CPU_TINY, transfer_bytes_per_s=1e6)
    pair = Pair(costs=costs)
    for name, room in (("a", 1), ("b", 2)):
        pair.ask(name, tokens=1, prompt=100, room=room)
    pair.run(5.0)
    first, second = (
        next(one.at for one in pair.heard[f"{name}-d"] if isinstance(one, Token)) for name in "ab"
    )
    began = costs.prefill_s + costs.prefill(100) + costs.transfer_s
    alone_s = costs.kv_bytes(100) / costs.transfer_bytes_per_s

    assert second == pytest.approx(began + 2 * alone_s)
    assert first > began + alone_s * 1.2


def test_a_frozen_scheduler_hears_its_peer_when_it_thaws() -> None:
    """A withdrawal ends nothing meanwhile."""
    engine = Scheduler("prefill", CPU_TINY, LIMITS, 0.0)
    engine.pause("in_place", 0.0)
    engine.submit(job("a"), 0.0)
    engine.paired(1, "decode:1", 0.0)
    engine.set_faults(faulty(freeze=True), 0.1)
    engine.withdrawn(1, 0.2)
    silent = engine.take_effects() == [] and engine.live == 1
    engine.set_faults(faulty(), 1.0)

    assert silent
    assert isinstance(engine.take_effects()[-1], Failed) and engine.live == 0
