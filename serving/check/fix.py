"""What to write against a trouble: settings, variables, and extra arguments of engines that are dropped or put (pure)."""

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from serving.check.facts import Facts
from serving.check.words import full_name, kept
from serving.config import EngineConfig

Value = float | str | tuple[str, ...]  # a bool too


@dataclass(frozen=True, slots=True)
class Drop:
    """These flags go out of every list of extra arguments."""

    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """This flag gets these values: for one role, or for all engines."""

    flag: str
    values: tuple[str, ...] = ()
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Set:
    """A key of serve.toml gets this value."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class Shell:
    """A line for the shell that `toolkit serve` is started in: `export NAME=value`, `unset NAME`."""

    line: str


Fix = Drop | Put | Set | Shell


def lists(engine: EngineConfig) -> dict[str, tuple[str, ...]]:
    """Where extra arguments can stand, by key."""
    return {
        "engine.extra_args": engine.extra_args,
        "engine.prefill.extra_args": engine.prefill.extra_args,
        "engine.decode.extra_args": engine.decode.extra_args,
    }


def has_extra(engine: EngineConfig) -> bool:
    """Whether there is any extra argument."""
    return any(lists(engine).values())


def written(fixes: Iterable[Fix], facts: Facts) -> tuple[str, ...]:
    """All of them as lines: `key = value` for serve.toml or --set, and what the shell gets; for engines that run already
    what to restart them with.

    Of two numbers for one key the smaller one is taken.
    """
    arguments, before = facts.arguments, lists(facts.config.engine)
    after = dict(before)
    settings: dict[str, Value] = {}
    shell: dict[str, None] = {}
    for fix in fixes:
        match fix:
            case Drop(flags) if facts.attached:
                shell[f"restart without {' '.join(flags)}"] = None
            case Put(flag, values) if facts.attached:
                shell[f"restart with {shlex.join((flag, *values))}"] = None
            case Drop(flags):
                after = {key: kept(words, flags, arguments) for key, words in after.items()}
            case Put(flag, values, role):
                flag = full_name(flag, arguments)
                mine = "engine.extra_args" if role is None else f"engine.{role}.extra_args"
                for key, words in after.items():
                    if role is None or key == mine:  # a role's own come later on the line, so they would win
                        after[key] = kept(words, (flag,), arguments)
                after[mine] = (*after[mine], flag, *values)
            case Set(key, value):
                settings[key] = _smaller(value, settings.get(key))
            case Shell(line):
                shell[line] = None
    changed = {key: words for key, words in after.items() if words != before[key]}
    return (
        *(f"{key} = {json.dumps(words)}" for key, words in changed.items()),
        *(f"{key} = {_toml(value)}" for key, value in settings.items()),
        *shell,
    )


def _smaller(value: Value, old: Value | None) -> Value:
    if isinstance(value, int | float) and isinstance(old, int | float):
        return min(value, old)
    return value


def _toml(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)
