"""What a rule is, and what it finds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from serving.check.facts import Facts
from serving.check.fix import Fix


class Severity(StrEnum):
    """error: it will not start, or requests fail. warning: it works worse than it looks. note: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Needs(StrEnum):
    """What a rule must see to say anything."""

    NOTHING = "the configuration"
    ENGINES = "the engines' command lines"
    ARGUMENTS = "the argument table of the installed SGLang"
    MODEL = "the model's config.json"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a reason stands. place: FILE:LINE of the sglang package (0.5.23), or a path in this repository.

    text: a part of that line of SGLang; a test compares it with the installed file.
    """

    place: str
    text: str = ""

    def __str__(self) -> str:
        return f"sglang/{self.place}" if self.text else self.place


@dataclass(frozen=True, slots=True)
class Trouble:
    """One find of a rule. where: an engine's name, or the key."""

    where: str
    what: str
    fix: Fix


@dataclass(frozen=True, slots=True)
class Rule:
    """One check. finds, why: for people. flags, variables: SGLang's arguments and environment that it reads."""

    id: str
    severity: Severity
    finds: str
    why: str
    sources: tuple[Source, ...]
    look: Callable[[Facts], Iterator[Trouble]]
    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    needs: Needs = Needs.NOTHING


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's trouble, with all places that have it. fix: lines for serve.toml or --set (`key = value`), or for the shell
    (`export NAME=value`, `unset NAME`)."""

    id: str
    severity: Severity
    where: tuple[str, ...]
    what: str
    why: str
    source: tuple[str, ...]
    fix: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Rules that could not look. reason: what is not here."""

    reason: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What all rules said, errors first. together: the fixes of all errors and warnings as one set of lines."""

    findings: tuple[Finding, ...]
    together: tuple[str, ...]
    unchecked: tuple[Unchecked, ...]

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Those of one severity."""
        return tuple(one for one in self.findings if one.severity is severity)
