"""Times that do not nest: whoever promises less must give up first."""

from collections.abc import Iterator
from math import inf

from serving.check.facts import Engine, Facts
from serving.check.fix import Drop, Set, Shell
from serving.check.rule import Needs, Rule, Severity, Source, Trouble
from serving.engines.commands import WAITING_TIMEOUT_S
from toolkit.core.sample import SloClass

WAITING, BOOTSTRAP = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT", "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT"
SGLANG_PATIENCE_S = 300.0
"""SGLang's default of both."""
TRANSFER, TRANSFER_S = "MC_TRANSFER_TIMEOUT", 30.0
WATCHDOG, WATCHDOG_S = "--watchdog-timeout", 300.0
QUEUED, RUNNING = "SGLANG_REQ_WAITING_TIMEOUT", "SGLANG_REQ_RUNNING_TIMEOUT"
LONG = 30.0
"""Times the promise of the default class: longer than that, what is left of a dead request holds too much for too long."""
IMPOSED = ("SGLANG_", "MC_", "MOONCAKE_")


def _patience(engine: Engine) -> dict[str, float]:
    return {name: engine.seconds(name, SGLANG_PATIENCE_S) for name in (WAITING, BOOTSTRAP)}


def _long(facts: Facts) -> Iterator[Trouble]:
    promise_s = facts.config.budget_s(facts.config.default_slo_class)
    most_s = max(LONG * promise_s, WAITING_TIMEOUT_S)  # what `toolkit serve` sets itself is never too long
    for engine in facts.ours:
        for name, patience_s in _patience(engine).items():
            if patience_s > most_s:
                told = f"{name} is {patience_s:g} s, and a first token is promised within {promise_s:g} s"
                yield Trouble(engine.name, told, Shell(f"export {name}={int(most_s)}"))


def _patience_s(facts: Facts) -> float:
    """The shortest of all engines; infinite where there are none."""
    return min((one for engine in facts.ours for one in _patience(engine).values()), default=inf)


def _promised(facts: Facts) -> tuple[SloClass, ...]:
    """The classes that somebody waits for."""
    default = facts.config.default_slo_class
    return tuple(slo for slo in SloClass if slo is not SloClass.BATCH or slo is default)


def _engines_first(facts: Facts) -> Iterator[Trouble]:
    patience_s = _patience_s(facts)
    for slo in _promised(facts):
        budget_s, key = facts.config.budget_s(slo), f"{slo.value}.ttft_budget_s"
        if budget_s > patience_s:
            told = f"{budget_s:g} s for a first token, and engines give a transfer up after {patience_s:g} s"
            yield Trouble(key, told, Set(key, patience_s))


def _engines_first_batch(facts: Facts) -> Iterator[Trouble]:
    patience_s, share = _patience_s(facts), facts.config.schedule.first_token_share
    inside_s = share * facts.config.batch.ttft_budget_s
    if SloClass.BATCH not in _promised(facts) and inside_s > patience_s:
        told = f"up to {inside_s:g} s inside the engines count as in time, and they give a transfer up after {patience_s:g} s"
        yield Trouble("batch.ttft_budget_s", told, Set("batch.ttft_budget_s", patience_s / share))


def _transfer(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.ours:
        transfer_s, waiting_s = (
            engine.seconds(TRANSFER, TRANSFER_S),
            engine.seconds(WAITING, SGLANG_PATIENCE_S),
        )
        if transfer_s >= waiting_s:
            told = f"{TRANSFER} is {transfer_s:g} s, and decode waits {waiting_s:g} s for a transfer"
            shorter = max(5, int(waiting_s / 2))
            yield Trouble(engine.name, told, Shell(f"export {TRANSFER}={shorter}"))


def _watchdog(facts: Facts) -> Iterator[Trouble]:
    stall_s = facts.config.stream_stall_s
    for engine in facts.real:
        watchdog_s = engine.number(WATCHDOG) or WATCHDOG_S
        if 0 < watchdog_s <= stall_s:
            told = f"SGLang ends itself after a silence of {watchdog_s:g} s, the gateway a stream after {stall_s:g} s"
            fix = Drop((WATCHDOG,)) if stall_s < WATCHDOG_S else Set("stream_stall_s", watchdog_s / 2)
            yield Trouble(engine.name, told, fix)


def _own_timeouts(facts: Facts) -> Iterator[Trouble]:
    default = facts.config.default_slo_class
    bounds = {QUEUED: facts.config.budget_s(default), RUNNING: facts.config.answer_timeout_s}
    keys = {QUEUED: f"{default.value}.ttft_budget_s", RUNNING: "answer_timeout_s"}
    for engine in facts.ours:
        for name, bound_s in bounds.items():
            if 0 < (mine_s := engine.seconds(name, -1.0)) < bound_s:
                told = f"{name} is {mine_s:g} s, below {keys[name]} = {bound_s:g}"
                yield Trouble(engine.name, told, Shell(f"unset {name}"))


def _imposed(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.ours:
        for name, value in engine.imposed.items():
            theirs = facts.environment.get(name)
            if name.startswith(IMPOSED) and theirs not in (None, value):
                told = f"{name}={theirs} is in the environment; engines are started with {name}={value}"
                yield Trouble(engine.name, told, Shell(f"unset {name}"))


def _drain(facts: Facts) -> Iterator[Trouble]:
    drain_s, default = facts.config.gateway.drain_timeout_s, facts.config.default_slo_class
    budget_s = facts.config.budget_s(default)
    if drain_s < budget_s and default is not SloClass.BATCH:
        told = (
            f"{drain_s:g} s, and requests of class {default.value} may wait {budget_s:g} s for a first token"
        )
        yield Trouble("gateway.drain_timeout_s", told, Set("gateway.drain_timeout_s", budget_s))


def _probes(facts: Facts) -> Iterator[Trouble]:
    budget_s = min(facts.config.budget_s(slo) for slo in SloClass if slo is not SloClass.REALTIME)
    looks = {
        "gateway.health_interval_s": facts.config.gateway.health_interval_s,
        "lease.look_interval_s": facts.config.lease.look_interval_s,
    }
    for key, interval_s in looks.items():
        if interval_s > budget_s:
            told = f"engines are looked at every {interval_s:g} s, and a request has {budget_s:g} s"
            yield Trouble(key, told, Set(key, budget_s / 2))


def _never(facts: Facts) -> Iterator[Trouble]:
    longest_s = max(facts.config.budget_s(slo) for slo in SloClass)
    limits = {
        "gateway.body_timeout_s": facts.config.gateway.body_timeout_s,
        "access.url_timeout_s": facts.config.access.url_timeout_s,
    }
    for key, limit_s in limits.items():
        if limit_s > longest_s:
            yield Trouble(key, f"{limit_s:g} s, and no class has more than {longest_s:g} s", Set(key, longest_s))  # fmt: skip


def _answer(facts: Facts) -> Iterator[Trouble]:
    answer_s, stall_s = facts.config.answer_timeout_s, facts.config.stream_stall_s
    if answer_s < stall_s:
        told = f"{answer_s:g} s for a whole answer, and a stream may be silent for {stall_s:g} s"
        yield Trouble("answer_timeout_s", told, Set("answer_timeout_s", 10 * stall_s))


def _due(facts: Facts) -> Iterator[Trouble]:
    for slo in SloClass:
        section = facts.config.slo(slo)
        for name in ("short_wait_s", "long_wait_s"):
            wait_s = getattr(section, name)
            if wait_s >= section.ttft_budget_s:
                told = f"{wait_s:g} s before its turn is due, of a budget of {section.ttft_budget_s:g} s"
                key = f"{slo.value}.{name}"
                yield Trouble(key, told, Set(key, section.ttft_budget_s / 4))


RULES = (
    Rule(
        "engines-wait-too-long",
        Severity.WARNING,
        "engines that wait for the other half of a transfer over 30 times the promised first token",
        "Whatever is left of a request whose gateway died, or of a dead peer, holds its KV pages that long (300 s by default).",
        (Source("srt/environ.py:763", "SGLANG_DISAGGREGATION_WAITING_TIMEOUT = EnvInt(300)"),
         Source("srt/environ.py:759", "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT = EnvInt(300)")),
        _long,
        variables=(WAITING, BOOTSTRAP),
        needs=Needs.ENGINES,
    ),
    Rule(
        "engines-give-up-first",
        Severity.WARNING,
        "a TTFT budget above the engines' own patience",
        "The gateway refuses typed, retries elsewhere and tells which hop was slow; an engine that gives up first answers 500.",
        (Source("srt/disaggregation/common/conn.py:2892", "self.kv_mgr.waiting_timeout"),),
        _engines_first,
        variables=(WAITING, BOOTSTRAP),
        needs=Needs.ENGINES,
    ),
    Rule(
        "engines-give-up-first-batch",
        Severity.NOTE,
        "the same for offline work: schedule.first_token_share of its budget above the engines' own patience",
        "The in-flight limit lets batch requests wait inside the engines that long; those that do are failed by the engines (502)"
        " and tried again where retries are left. Time in the gateway's own queue is not concerned.",
        (Source("srt/disaggregation/common/conn.py:2892", "self.kv_mgr.waiting_timeout"),),
        _engines_first_batch,
        variables=(WAITING, BOOTSTRAP),
        needs=Needs.ENGINES,
    ),
    Rule(
        "transfer-outlives-its-wait",
        Severity.WARNING,
        "Mooncake's transfer timeout at or above decode's wait for it",
        "Decode then gives up while the transfer still writes into its pages, and prefill learns of nothing.",
        (Source("srt/environ.py:763", "SGLANG_DISAGGREGATION_WAITING_TIMEOUT"),
         Source("https://github.com/kvcache-ai/Mooncake/blob/main/mooncake-integration/transfer_engine/transfer_engine_py.cpp")),
        _transfer,
        variables=(TRANSFER, WAITING),
        needs=Needs.ENGINES,
    ),
    Rule(
        "stall-over-watchdog",
        Severity.WARNING,
        "a stream's silence allowed for longer than SGLang's watchdog",
        "SGLang ends its whole process, and every request in it, before the gateway gives the one stream up.",
        (Source("srt/arg_groups/fields/device.py:68", "the server will crash to prevent hanging"),),
        _watchdog,
        flags=(WATCHDOG,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "engine-timeouts",
        Severity.WARNING,
        "SGLang's own request timeouts below the gateway's",
        "Such an abort is a 503, which the gateway takes for backpressure: it sends less, and the request is lost. The waiting"
        " timeout does not cover the queues of prefill/decode mode either.",
        (Source("srt/environ.py:685", "SGLANG_REQ_WAITING_TIMEOUT"), Source("srt/environ.py:686", "SGLANG_REQ_RUNNING_TIMEOUT")),
        _own_timeouts,
        variables=(QUEUED, RUNNING),
        needs=Needs.ENGINES,
    ),
    Rule(
        "environment-overruled",
        Severity.WARNING,
        "a variable in the environment that `toolkit serve` sets otherwise",
        "Engines get what the toolkit sets; the exported value has no effect.",
        (Source("serving/engines/commands.py"),),
        _imposed,
        needs=Needs.ENGINES,
    ),
    Rule(
        "drain-under-budget",
        Severity.WARNING,
        "a drain shorter than a request's budget",
        "At a stop, requests that could still be answered in time are cut (503 shutting_down).",
        (Source("serving/gateway.py"),),
        _drain,
    ),
    Rule(
        "probes-too-rare",
        Severity.WARNING,
        "engines looked at less often than once per budget",
        "An engine that stopped, is back, or has room again is noticed only after whole budgets were spent.",
        (Source("serving/health.py"),),
        _probes,
    ),
    Rule(
        "limit-never-reached",
        Severity.NOTE,
        "an upload or download limit above every budget",
        "The TTFT budget runs from the arrival, so it ends first: a 504 instead of what the limit would tell.",
        (Source("serving/intake.py"), Source("serving/access/download.py")),
        _never,
    ),
    Rule(
        "answer-under-stall",
        Severity.WARNING,
        "less time for a whole answer than for a stream's silence",
        "The same request is given up sooner when it is not streamed.",
        (Source("serving/lifecycle.py"),),
        _answer,
    ),
    Rule(
        "due-too-late",
        Severity.WARNING,
        "a wait threshold at or above the TTFT budget",
        "The request's turn is due when its budget has ended, so it is never reserved a place.",
        (Source("docs/decisions/0022-who-goes-first.md"),),
        _due,
    ),
)  # fmt: skip
