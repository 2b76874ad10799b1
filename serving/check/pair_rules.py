"""What prefill/decode disaggregation ignores, changes or refuses."""

from collections.abc import Iterator

from serving.check.facts import Engine, Facts
from serving.check.fix import Drop, Put, Set, Shell
from serving.check.rule import Needs, Rule, Severity, Source, Trouble

QUEUE = "--max-queued-requests"
POLICY = "--schedule-policy"
CACHE_POLICIES = ("lpm", "hrrn", "dfs-weight")
NEEDS_CACHE = "shortest-prefill-first"
DECODE_RADIX, NO_RADIX = "--disaggregation-decode-enable-radix-cache", "--disable-radix-cache"
BACKUP = "--disaggregation-decode-retraction-backup"
BACKEND, ALLOCATION = "--disaggregation-transfer-backend", "--disaggregation-decode-allocation-policy"
ALIKE = {"--page-size": "", "--kv-cache-dtype": "", BACKEND: "mooncake", ALLOCATION: "early"}
"""Flags that both roles must have alike, with SGLang's defaults; empty: the default depends on model and machine, so only
two values that were given are compared. mooncake_tcp is mooncake, which takes TCP by itself where there is no RDMA."""
CHECKSUM = "--disaggregation-enable-kv-checksum"
PRIORITIES, REFUSES = "--enable-priority-scheduling", "--abort-on-priority-when-disabled"
FORCE_TCP = "MC_FORCE_TCP"
SESSION_PROBE = "SGLANG_ENABLE_FAILED_SESSION_PROBE"
MOONCAKE = "https://github.com/kvcache-ai/Mooncake/blob/main"


def _queue(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if engine.has(QUEUE):
            yield Trouble(engine.name, f"{QUEUE} {engine.value(QUEUE)} does nothing here", Drop((QUEUE,)))


def _has_radix(engine: Engine) -> bool:
    return engine.has(DECODE_RADIX) if engine.role == "decode" else not engine.has(NO_RADIX)


def _policy(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if engine.value(POLICY) in CACHE_POLICIES and not _has_radix(engine):
            told = f"{POLICY} {engine.value(POLICY)} is fcfs on an engine without a radix cache"
            yield Trouble(engine.name, told, Put(POLICY, ("fcfs",), role=engine.role))


def _policy_dies(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if engine.value(POLICY) == NEEDS_CACHE and not _has_radix(engine):
            told = f"{POLICY} {NEEDS_CACHE} on an engine without a radix cache"
            yield Trouble(engine.name, told, Put(POLICY, ("fcfs",), role=engine.role))


def _hrrn(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.of("prefill"):
        slots = facts.config.schedule.max_in_flight
        if engine.value(POLICY) == "hrrn" and _has_radix(engine) and slots > 128:
            told = f"{POLICY} hrrn, and up to {slots} requests (schedule.max_in_flight) may be in its queue"
            yield Trouble(engine.name, told, Set("schedule.max_in_flight", 128))


def _unlike(facts: Facts) -> Iterator[Trouble]:
    for prefill, decode in zip(facts.of("prefill")[:1], facts.of("decode")[:1], strict=False):
        for flag, default in ALIKE.items():
            ours, theirs = (one.value(flag, default).removesuffix("_tcp") for one in (prefill, decode))
            if "" not in (ours, theirs) and ours != theirs:
                told = f"{flag} is {ours} on prefill and {theirs} on decode"
                yield Trouble("prefill and decode", told, Put(flag, (prefill.value(flag, default),)))


def _checksum(facts: Facts) -> Iterator[Trouble]:
    if len({engine.has(CHECKSUM) for engine in facts.real}) == 2:
        lacking = next(engine for engine in facts.real if not engine.has(CHECKSUM))
        yield Trouble(lacking.name, f"{CHECKSUM} on one side only", Put(CHECKSUM, ()))


def _backup(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.of("decode"):
        if engine.value(BACKUP) == "none":
            fix = Put(BACKUP, ("cpu_tensor",), role="decode")
            yield Trouble(engine.name, f"{BACKUP} none", fix)


def _forced_tcp(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.ours:
        if facts.config.engine.transfer == "rdma" and FORCE_TCP in engine.environment:
            yield Trouble(engine.name, f'engine.transfer = "rdma", and {FORCE_TCP} is set', Shell(f"unset {FORCE_TCP}"))  # fmt: skip


def _refuses_priorities(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if engine.has(REFUSES) and not engine.has(PRIORITIES):
            yield Trouble(engine.name, f"{REFUSES} without {PRIORITIES}", Drop((REFUSES,)))


def _no_probe(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.ours:
        if engine.role == "prefill" and not engine.switched_on(SESSION_PROBE, default=True):
            told = f"{SESSION_PROBE}={engine.environment[SESSION_PROBE]}"
            yield Trouble(engine.name, told, Shell(f"unset {SESSION_PROBE}"))


RULES = (
    Rule(
        "queue-limit-ignored",
        Severity.WARNING,
        "a queue limit given to SGLang",
        "SGLang ignores it in prefill/decode mode, so the engines' queues have no bound. The gateway's waiting room is the"
        " limit (schedule.max_waiting), and what is inside the engines is schedule.max_in_flight.",
        (Source("srt/arg_groups/fields/schedule.py:37", "ignored when using disaggregation-mode"),),
        _queue,
        flags=(QUEUE,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "policy-without-cache",
        Severity.WARNING,
        "hrrn, lpm or dfs-weight where there is no radix cache",
        "Without a radix cache SGLang quietly takes fcfs; decode has none unless"
        " --disaggregation-decode-enable-radix-cache (experimental) turns it on. The gateway orders what waits.",
        (
            Source("srt/managers/schedule_policy.py:338", "return CacheAgnosticPolicy.FCFS"),
            Source("srt/arg_groups/pd_disaggregation_hook.py:125", "disable_radix_cache=True"),
        ),
        _policy,
        flags=(POLICY, DECODE_RADIX, NO_RADIX),
        needs=Needs.ENGINES,
    ),
    Rule(
        "policy-dies",
        Severity.ERROR,
        "shortest-prefill-first where there is no radix cache",
        "SGLang raises ValueError while it builds the scheduler, so the engine never starts.",
        (
            Source(
                "srt/managers/schedule_policy.py:335",
                "Experimental shortest-prefill-first requires prefix caching",
            ),
        ),
        _policy_dies,
        flags=(POLICY, DECODE_RADIX, NO_RADIX),
        needs=Needs.ENGINES,
    ),
    Rule(
        "hrrn-becomes-fcfs",
        Severity.WARNING,
        "hrrn with more than 128 requests in a queue",
        "Above 128 waiting requests SGLang takes fcfs instead: just when an order matters.",
        (Source("srt/managers/schedule_policy.py:137", "WAITING_QUEUE_PREFIX_MATCH_MAX = 128"),),
        _hrrn,
        flags=(POLICY, NO_RADIX),
        needs=Needs.ENGINES,
    ),
    Rule(
        "roles-unlike",
        Severity.ERROR,
        "page size, KV type, transfer backend or allocation policy that differs between prefill and decode",
        "Decode refuses a prefill with another page size or KV type (RuntimeError at the first request), and two backends or"
        " allocation policies do not understand each other.",
        (
            Source("srt/disaggregation/common/conn.py:1320", "info.page_size != self.kv_args.page_size"),
            Source(
                "srt/disaggregation/common/conn.py:1329", "info.kv_cache_dtype != self.kv_cache_dtype_str"
            ),
            Source("srt/arg_groups/fields/disagg.py:63", "Set the same policy on both roles"),
        ),
        _unlike,
        flags=tuple(ALIKE),
        needs=Needs.ENGINES,
    ),
    Rule(
        "checksum-one-sided",
        Severity.WARNING,
        "KV checksums on one role only",
        "Prefill computes what decode verifies: with one side alone nothing is checked.",
        (Source("srt/arg_groups/fields/disagg.py:75", "Enable on both prefill and decode engines"),),
        _checksum,
        flags=(CHECKSUM,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "retraction-loses-requests",
        Severity.WARNING,
        "decode without a backup for retracted requests",
        "When decode's KV pool is full, a request that had begun to answer is aborted with 503; after its first token nothing"
        " can try it again.",
        (Source("srt/arg_groups/fields/disagg.py:102", "'none' keeps no backup"),),
        _backup,
        flags=(BACKUP,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "sessions-stay-failed",
        Severity.WARNING,
        "no probes of failed KV transfer sessions",
        "After one failed transfer prefill gives that decode nothing until its probe gets through, 30 s later at the soonest."
        " Without the probe the pair fails every request until one of the two is restarted.",
        (
            Source("srt/disaggregation/mooncake/conn.py:2590", "in self.failed_sessions"),
            Source("srt/environ.py:872", "SGLANG_ENABLE_FAILED_SESSION_PROBE = EnvBool(True)"),
            Source("https://github.com/sgl-project/sglang/issues/13054"),
        ),
        _no_probe,
        variables=(SESSION_PROBE,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "rdma-forced-to-tcp",
        Severity.WARNING,
        "RDMA asked for, and MC_FORCE_TCP in the environment",
        "Mooncake looks whether the variable is there, not at its value, and installs its TCP transport.",
        (
            Source("srt/arg_groups/pd_disaggregation_hook.py:31", "MC_FORCE_TCP"),
            Source(f"{MOONCAKE}/mooncake-transfer-engine/src/transfer_engine_impl.cpp"),
        ),
        _forced_tcp,
        variables=(FORCE_TCP,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "priorities-abort",
        Severity.WARNING,
        "requests with a priority are aborted",
        "A client's `priority` field reaches the engine, which aborts the request while priority scheduling is off.",
        (Source("srt/managers/scheduler.py:3530", "self.abort_on_priority_when_disabled"),),
        _refuses_priorities,
        flags=(PRIORITIES, REFUSES),
        needs=Needs.ENGINES,
    ),
)
