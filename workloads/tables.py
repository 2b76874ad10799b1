"""Tables of plain JSON types as TOML."""

import json
from collections.abc import Mapping
from typing import Any


def toml_of(tables: Mapping[str, Any]) -> str:
    """The text of a TOML file with these tables; there is no null in it."""
    lines: list[str] = []
    _write_table(tables, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    # json's strings, numbers, booleans and lists are TOML's too; only tables are written differently.
    for key, value in table.items():
        if not isinstance(value, dict) and not _is_tables(value):
            lines.append(f"{_key(key)} = {json.dumps(value)}")
    for key, value in table.items():
        dotted = ".".join(_key(part) for part in (*path, key))
        if isinstance(value, dict):
            lines.extend(("", f"[{dotted}]"))
            _write_table(value, (*path, key), lines)
        elif _is_tables(value):
            for item in value:
                lines.extend(("", f"[[{dotted}]]"))
                _write_table(item, (*path, key), lines)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
