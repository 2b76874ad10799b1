"""Typed configuration from TOML: every key known, every mistake named with the nearest right name."""

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.core.errors import UsageFault
from toolkit.core.masked import masked

M = TypeVar("M", bound=BaseModel)

_PLAIN = {"tuple_type": 'should be a list, as ["a", "b"]', "model_type": "should be a table of keys"}
"""pydantic's words for Python, in TOML's."""


class Section(BaseModel):
    """A frozen configuration table that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables. Raises UsageFault when it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageFault(f"{path}: cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageFault(f"{path}: not TOML: {error}.") from error


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid on it, table by table; `over` wins."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = (
            merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def set_path(tables: Mapping[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """`tables` with the key at `a.b.c` set; missing tables are made."""
    head, _, rest = dotted.partition(".")
    if not rest:
        return merge(tables, {head: value})
    below = tables.get(head)
    return merge(tables, {head: set_path(below if isinstance(below, Mapping) else {}, rest, value)})


def parse_assignment(text: str) -> tuple[str, Any]:
    """`a.b=3` as ("a.b", 3); the value is read as TOML, and as a plain string where it is not TOML.

    Raises UsageFault when there is no `=`.
    """
    dotted, sep, raw = text.partition("=")
    if not sep or not dotted.strip():
        raise UsageFault(f"--set {text!r}: write it as key.name=value.")
    try:
        return dotted.strip(), tomllib.loads(f"v = {raw}")["v"]
    except tomllib.TOMLDecodeError:
        return dotted.strip(), raw


def validate(model: type[M], tables: Mapping[str, Any], source: str) -> M:
    """The tables as a frozen model.

    Raises UsageFault that lists each mistake by its dotted key, with the nearest known name for an unknown one.
    """
    try:
        return model.model_validate(dict(tables))
    except ValidationError as error:
        lines = [_explain(model, dict(item)) for item in error.errors()]
        raise UsageFault(f"{source}:\n" + "\n".join(f"  {line}" for line in lines)) from error


def load(
    model: type[M],
    path: Path | None,
    assignments: Iterable[str] = (),
    overrides: Mapping[str, Any] | None = None,
) -> M:
    """Defaults < file < `overrides` (flags) < `assignments` (`--set a.b=c`)."""
    tables = read_toml(path) if path else {}
    tables = merge(tables, overrides or {})
    for text in assignments:
        tables = set_path(tables, *parse_assignment(text))
    return validate(model, tables, str(path) if path else "configuration")


def _explain(model: type[BaseModel], item: dict[str, Any]) -> str:
    location = cast("tuple[int | str, ...]", item["loc"])
    dotted = ".".join(str(part) for part in location)
    if item["type"] != "extra_forbidden":
        given = item.get("input")
        got = "" if _has_tables(given) else f" (got {masked(repr(given))})"
        said = _PLAIN.get(str(item["type"])) or str(item["msg"]).removeprefix("Value error, ")
        return f"{dotted}: {said}{got}." if dotted else f"{said}{got}."
    name, known = str(location[-1]), sorted(_fields_at(model, location[:-1]))
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    elsewhere = [path for path in _paths(model) if path.rpartition(".")[2] == name]
    if elsewhere:
        return f"{dotted}: unknown key; did you mean {elsewhere[0]!r}?"
    hint = f"did you mean {near[0]!r}?" if near else f"known keys here: {', '.join(known)}."
    return f"{dotted}: unknown key; {hint}"


def _has_tables(given: Any) -> bool:
    return isinstance(given, Mapping | BaseModel) or (
        isinstance(given, list | tuple) and any(map(_has_tables, given))
    )


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        below = _model_of(field.annotation)
        if below is not None:
            yield from _paths(below, f"{prefix}{name}.")


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    current: type[BaseModel] | None = model
    for part in location:
        if current is None or not isinstance(part, str):
            continue  # a list index or a free-form mapping key: the model below stays
        field = current.model_fields.get(part)
        current = _model_of(field.annotation) if field is not None else current
    return set(current.model_fields) if current is not None else set()


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_of(inner)
        if found is not None:
            return found
    return None
