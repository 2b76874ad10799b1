"""What would be measured wrongly: bucket edges, health checks, switches for drills."""

from collections.abc import Iterator

from serving.check.facts import Engine, Facts
from serving.check.fix import Drop, Put, Set, Shell
from serving.check.rule import Needs, Rule, Severity, Source, Trouble
from serving.engines.commands import ITL_BUCKETS, TTFT_BUCKETS
from toolkit.core import names
from toolkit.core.sample import SloClass
from toolkit.core.slo import DEFAULT_SLOS

TTFT, ITL = "--bucket-time-to-first-token", "--bucket-inter-token-latency"
SGLANG_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
"""SGLang's default edges of the TTFT histogram: no 3 s."""
SGLANG_ITL = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8,
              1, 2, 4, 6, 8)  # fmt: skip
HEALTH = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
DRILLS = (
    "SGLANG_TEST_DISAGG_FAILURE_PROB",
    "SGLANG_TEST_DISAGG_KV_CHECKSUM_MISMATCH_PROB",
    "SGLANG_TEST_RETRACT",
)
INTERVAL = "--stream-interval"
METRICS = "--enable-metrics"


def _thresholds(facts: Facts) -> tuple[float, ...]:
    """The TTFT promises that people wait for, seconds."""
    return tuple(facts.config.budget_s(slo) for slo in SloClass if slo is not SloClass.BATCH)


def _edges(engine: Engine, flag: str, default: tuple[float, ...]) -> tuple[float, ...]:
    try:
        return tuple(float(value) for value in engine.flags.get(flag, ())) or default
    except ValueError:
        return default


def _lacking(facts: Facts, flag: str, default: tuple[float, ...], ours: tuple[float, ...], wanted: tuple[float, ...]) -> Iterator[Trouble]:  # fmt: skip
    for engine in facts.engines:
        lacks = [value for value in wanted if value not in _edges(engine, flag, default)]
        if lacks:
            told = f"{flag} has no edge at {' and '.join(f'{value:g}' for value in lacks)} s"
            edges = sorted({*ours, *wanted})
            yield Trouble(engine.name, told, Put(flag, tuple(f"{edge:g}" for edge in edges)))


def _ttft(facts: Facts) -> Iterator[Trouble]:
    yield from _lacking(facts, TTFT, SGLANG_TTFT, TTFT_BUCKETS, _thresholds(facts))


def _itl(facts: Facts) -> Iterator[Trouble]:
    limits = tuple(slo.itl_p95_s for slo in DEFAULT_SLOS.values() if slo.itl_p95_s is not None)
    yield from _lacking(facts, ITL, SGLANG_ITL, ITL_BUCKETS, limits)


def _own_edges(facts: Facts) -> Iterator[Trouble]:
    for slo in SloClass:
        budget_s = facts.config.budget_s(slo)
        if budget_s not in names.TTFT_EDGES_S:
            nearest = min(names.TTFT_EDGES_S, key=lambda edge: abs(edge - budget_s))
            told = f"{budget_s:g} s is no edge of {names.TTFT.name}"
            key = f"{slo.value}.ttft_budget_s"
            yield Trouble(key, told, Set(key, nearest))


def _health(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.ours:
        if engine.switched_on(HEALTH, default=True):
            yield Trouble(engine.name, "GET /health generates a token", Shell(f"export {HEALTH}=false"))


def _drills(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.ours:
        for name in DRILLS:
            if engine.environment.get(name, "") not in ("", "0", "0.0", "false"):
                yield Trouble(engine.name, f"{name}={engine.environment[name]}", Shell(f"unset {name}"))


def _interval(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.of("decode"):
        if (tokens := engine.number(INTERVAL) or 1) > 1:
            told = f"{INTERVAL} {tokens:g}: an event holds up to {tokens:g} tokens"
            yield Trouble(engine.name, told, Drop((INTERVAL,)))


def _metrics(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if not engine.has(METRICS):
            yield Trouble(engine.name, f"no {METRICS}", Put(METRICS))


RULES = (
    Rule(
        "engine-metrics-off",
        Severity.WARNING,
        "an engine without /metrics",
        "Queues, KV use, transfers and failed sessions are told there and nowhere else.",
        (Source("srt/arg_groups/fields/observability.py:70", "Enable log prometheus metrics"),),
        _metrics,
        flags=(METRICS,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "ttft-edges",
        Severity.WARNING,
        "a TTFT promise that is no edge of the engines' histogram",
        "A threshold inside a bucket cannot be read off: SGLang's own edges have none at 3 s, so attainment would be guessed"
        " between 2 and 4 s. `toolkit serve` sets edges for the usual promises.",
        (Source("srt/observability/metrics_collector.py:1966", "bucket_time_to_first_token"),),
        _ttft,
        flags=(TTFT,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "itl-edges",
        Severity.WARNING,
        "an inter-token limit (50 and 100 ms) that is no edge of the engines' histogram",
        "SGLang's own edges have none at 50 ms.",
        (Source("srt/observability/metrics_collector.py:2014", "bucket_inter_token_latency"),),
        _itl,
        flags=(ITL,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "budget-no-edge",
        Severity.NOTE,
        "a TTFT budget that is no edge of the gateway's histogram",
        "Attainment by class is exact in toolkit_slo_requests_total whatever the budget; read off the histogram it is a guess.",
        (Source("toolkit/core/names.py"),),
        _own_edges,
    ),
    Rule(
        "health-generates",
        Severity.WARNING,
        "a /health that runs a generation",
        "Each look takes a second or more, fails under load after 20 s (a busy engine looks dead), and can leave requests"
        " behind. The gateway looks at /ready and at tokens that move; a load balancer or Kubernetes would ask /health.",
        (
            Source("srt/environ.py:344", "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION = EnvBool(True)"),
            Source("https://github.com/sgl-project/sglang/issues/22511"),
            Source("https://github.com/sgl-project/sglang/issues/35884"),
        ),
        _health,
        variables=(HEALTH,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "drill-switched-on",
        Severity.WARNING,
        "one of SGLang's fault switches",
        "It makes SGLang fail transfers, or retract requests, at random.",
        (Source("srt/environ.py:421", "SGLANG_TEST_DISAGG_FAILURE_PROB"),),
        _drills,
        variables=DRILLS,
        needs=Needs.ENGINES,
    ),
    Rule(
        "tokens-in-bundles",
        Severity.NOTE,
        "several tokens per event",
        "Gaps between events are then no gaps between tokens: compare no ITL with one that was measured otherwise.",
        (Source("srt/arg_groups/fields/serving.py:262", "stream_interval"),),
        _interval,
        flags=(INTERVAL,),
        needs=Needs.ENGINES,
    ),
)
