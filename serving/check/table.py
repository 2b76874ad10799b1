"""The table of rules, and what they say of a configuration (pure)."""

from collections.abc import Iterable, Iterator

from serving.check import (
    argument_rules,
    load_rules,
    measure_rules,
    model_rules,
    open_rules,
    pair_rules,
    shared_rules,
    time_rules,
)
from serving.check.facts import Facts
from serving.check.fix import Fix, has_extra, written
from serving.check.rule import Finding, Needs, Report, Rule, Severity, Trouble, Unchecked

GROUPS: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("Arguments", argument_rules.RULES),
    ("Prefill and decode", pair_rules.RULES),
    ("The model and its images", model_rules.RULES),
    ("Times", time_rules.RULES),
    ("Load", load_rules.RULES),
    ("Several gateways", shared_rules.RULES),
    ("Measuring", measure_rules.RULES),
    ("Doors", open_rules.RULES),
)
RULES = tuple(rule for _, rules in GROUPS for rule in rules)

ELSEWHERE: tuple[tuple[str, str], ...] = (
    ("an unknown key, a value of the wrong type or out of its range", "reading serve.toml"),
    ("RDMA without devices; only one of attach_prefill and attach_decode", "reading serve.toml"),
    ("access.memory_mb too small for one body or one image file of the largest size", "reading serve.toml"),
    ("retry.cap_s below retry.base_s; a store's URL with credentials", "reading serve.toml"),
    ("the admin API open to other machines without tokens; a fallback's URL with credentials", "reading serve.toml"),
    ("pools that name no prefill of this service, leave one out or serve a class twice", "planning, before the check"),
    ("GPU ids named twice, for both roles, or that tp does not divide", "planning, before the check"),
    ("no GPU, no engine environment, a port that is taken, no model in the folder", "`toolkit serve` without --check"),
    ("an attached engine in another role than given, or without its bootstrap server", "`toolkit serve`, by asking it"),
    ("another shared.ttl_s than that of the gateways that share now", "`toolkit serve`, by asking the ledger"),
    ("versions, memory, disk, /dev/shm and the clock of this machine", "`toolkit doctor`"),
    ("`input_ids` with images, fields of the rendezvous, values that end a scheduler", "each request (400)"),
)  # fmt: skip
"""What is refused or told elsewhere, and where."""

ORDER = tuple(Severity)


def check(facts: Facts) -> Report:
    """Every rule that can look, errors first, in the table's order."""
    lacks = {rule: _lacks(rule, facts) for rule in RULES}
    told = sorted(
        ((rule, trouble) for rule in RULES if not lacks[rule] for trouble in rule.look(facts)),
        key=lambda pair: ORDER.index(pair[0].severity),
    )
    unchecked = tuple(
        Unchecked(reason, tuple(rule.id for rule in RULES if lacks[rule] == reason))
        for reason in sorted(set(lacks.values()) - {""})
    )
    graver = (trouble.fix for rule, trouble in told if rule.severity is not Severity.NOTE)
    together = written(graver, facts)
    return Report(tuple(_merged(told, facts)), together, unchecked)


def _merged(told: Iterable[tuple[Rule, Trouble]], facts: Facts) -> Iterator[Finding]:
    """The same trouble in several places is one finding."""
    places: dict[tuple[Rule, str, Fix], list[str]] = {}
    for rule, trouble in told:
        places.setdefault((rule, trouble.what, trouble.fix), []).append(trouble.where)
    for (rule, what, fix), where in places.items():
        lines = written((fix,), facts)
        sources = tuple(map(str, rule.sources))
        yield Finding(rule.id, rule.severity, tuple(dict.fromkeys(where)), what, rule.why, sources, lines)


def _lacks(rule: Rule, facts: Facts) -> str:
    """Why the rule cannot look; empty where it can."""
    if facts.attached and rule.variables:
        return "engines that run already do not tell their environment"
    if facts.attached and rule.needs is Needs.ENGINES and not facts.engines:
        return "the engines run already, and do not tell how they were started"
    if rule.needs is Needs.ARGUMENTS and has_extra(facts.config.engine):
        if facts.engines and not facts.real:
            return "simulated engines are not SGLang"
        if facts.real and facts.arguments is None:
            return "SGLang is not installed here, so its own table of arguments cannot be read (make install)"
    if rule.needs is Needs.MODEL and facts.grid is None:
        return "the model's files are not here"
    return ""
