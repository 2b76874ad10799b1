"""Extra arguments that SGLang refuses, or that `toolkit serve` needs for itself."""

import difflib
from collections.abc import Iterator

from serving.check.facts import Facts
from serving.check.fix import Drop, Put, lists
from serving.check.rule import Needs, Rule, Severity, Source, Trouble
from serving.check.words import full_name, grouped

OWNED = {
    "--host": "engine.host",
    "--port": "engine.base_port",
    "--model-path": "model.path",
    "--served-model-name": "model.served_name",
    "--disaggregation-mode": "",
    "--disaggregation-bootstrap-port": "",
    "--tp-size": "engine.tp",
}
"""Flags that the gateway counts on, and the key that sets each; empty: nothing does."""

FILE = "--config"
KV = "--kv-cache-dtype"
EIGHT_BITS = "fp8_e4m3"


def _extra(facts: Facts) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each extra argument: the key that it stands at, its flag as written, its values."""
    for key, words in lists(facts.config.engine).items():
        for flag, values in grouped(words):
            yield key, flag, values


def _unknown(facts: Facts) -> Iterator[Trouble]:
    known = facts.arguments
    for key, flag, _ in _extra(facts):
        if known is not None and known.full(flag) is None:
            near = difflib.get_close_matches(flag, known.names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield Trouble(key, f"SGLang has no {flag}{hint}", Drop((flag,)))


def _choice(facts: Facts) -> Iterator[Trouble]:
    choices = facts.arguments.choices if facts.arguments is not None else {}
    for key, flag, values in _extra(facts):
        full = full_name(flag, facts.arguments)
        allowed = choices.get(full, ())
        wrong = [value for value in values if allowed and value not in allowed]
        if wrong and not (full == KV and wrong == ["int8"]):
            told = f"{full} {wrong[0]}: SGLang takes {', '.join(allowed)}"
            yield Trouble(key, told, Drop((full,)))


def _kv_int8(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if engine.value(KV) == "int8":
            yield Trouble(engine.name, f"{KV} int8", Put(KV, (EIGHT_BITS,)))


def _owned(facts: Facts) -> Iterator[Trouble]:
    for key, flag, _ in _extra(facts):
        full = full_name(flag, facts.arguments)
        if full in OWNED:
            instead = f"; set {OWNED[full]} instead" if OWNED[full] else ""
            yield Trouble(key, f"{full} is set by `toolkit serve`{instead}", Drop((full,)))


def _file(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if engine.has(FILE):
            told = f"{FILE} {engine.value(FILE)}: what stands in that file is not looked at"
            yield Trouble(engine.name, told, Drop((FILE,)))


RULES = (
    Rule(
        "argument-unknown",
        Severity.ERROR,
        "an extra argument that SGLang does not have",
        "SGLang's parser ends the engine at once, and the supervisor starts it again until it gives up.",
        (Source("srt/arg_groups/arg_utils.py:298", "def add_cli_args_from_dataclass"),),
        _unknown,
        needs=Needs.ARGUMENTS,
    ),
    Rule(
        "argument-choice",
        Severity.ERROR,
        "a value that the argument does not take",
        "SGLang's parser ends the engine at once, and the supervisor starts it again until it gives up.",
        (Source("srt/arg_groups/arg_utils.py:298", "def add_cli_args_from_dataclass"),),
        _choice,
        needs=Needs.ARGUMENTS,
    ),
    Rule(
        "kv-int8",
        Severity.ERROR,
        "an INT8 KV cache",
        "SGLang has none: its 8-bit KV caches are fp8_e4m3, fp8_e5m2 and mxfp8. E4M3 has the finer mantissa.",
        (Source("srt/arg_groups/fields/model.py:197", "kv_cache_dtype"),),
        _kv_int8,
        flags=(KV,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "argument-owned",
        Severity.ERROR,
        "an extra argument for what `toolkit serve` sets itself",
        "Later arguments win, so the engine would listen, or act, otherwise than the gateway and the other engines think.",
        (Source("serving/engines/commands.py"),),
        _owned,
        flags=tuple(OWNED),
        needs=Needs.ENGINES,
    ),
    Rule(
        "argument-file",
        Severity.WARNING,
        "arguments out of a file",
        "SGLang merges that file into its command line; this check reads the command line alone.",
        (Source("srt/server_args.py:387", "parser.add_argument("),),
        _file,
        flags=(FILE,),
        needs=Needs.ENGINES,
    ),
)
