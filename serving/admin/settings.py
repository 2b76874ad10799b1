"""What may be changed while a gateway runs: flat keys and values over the frozen configuration. Pure.

    schedule.max_in_flight ...    the keys of serve.toml in LIVE sections; what a value may be is what serve.toml says of it
    pool.NAME.share               its share of what decodes hold
    instance.NAME.drained         nothing new is given to that engine
    instance.NAME.weight          its part of the work beside others of its role, 1 by default

A change is validated as a whole: either all of it holds, or nothing is changed.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from serving.config import ServeConfig
from serving.service import Service
from toolkit.core.config import Section, merge, set_path, validate
from toolkit.core.errors import InvalidRequest, UsageFault

LIVE = ("schedule", "lease", "retry", "shed", "realtime", "standard", "batch")
"""Sections whose values are read where they are used, so that a change holds from then on."""
FIXED = frozenset({"retry.window_s", "lease.look_interval_s"})
"""Keys of theirs that are not: what was counted in one window says nothing about another, and looking goes its round."""

INSTANCE = "instance."
POOL = "pool."

Value = Any
"""What JSON can say."""


class Placing(Section):
    """What an operator says of one engine."""

    drained: bool = Field(False, description="Nothing new is given to it; what it has runs to its end.")
    weight: float = Field(1.0, gt=0, le=100, description="Its part of the work beside others of its role.")


@dataclass(frozen=True, slots=True)
class Settings:
    """The values at one time. roles: of the instances, prefill or decode."""

    config: ServeConfig
    instances: Mapping[str, Placing]
    roles: Mapping[str, str]

    @classmethod
    def of(cls, service: Service) -> "Settings":
        """As configured."""
        roles = {engine.name: engine.role for engine in service.engines}
        return cls(service.config, {name: Placing() for name in roles}, roles)

    def values(self) -> dict[str, Value]:
        """All that may be changed, by key, as JSON has it."""
        sections = {name: getattr(self.config, name).model_dump(mode="json") for name in LIVE}
        found = {key: value for key, value in _flat(sections) if key not in FIXED}
        found |= {f"{POOL}{pool.name}.share": pool.share for pool in self.config.pools}
        for name, placing in self.instances.items():
            found |= {f"{INSTANCE}{name}.{key}": value for key, value in placing.model_dump().items()}
        return found

    def changed(self, asked: Mapping[str, Value]) -> "Settings":
        """With these values. Raises InvalidRequest that names the key; `param` is the first wrong one."""
        known = self.values()
        for key in asked:
            if key not in known:
                raise InvalidRequest(self._why_not(key, known), param=key)
        engines: dict[str, Any] = {}
        shares: dict[str, Any] = {}
        sections: dict[str, Any] = {}
        for key, value in asked.items():
            if key.startswith(INSTANCE):
                name, _, field = key.removeprefix(INSTANCE).rpartition(".")
                engines.setdefault(name, {})[field] = value
            elif key.startswith(POOL):
                shares[key.removeprefix(POOL).removesuffix(".share")] = value
            else:
                sections = set_path(sections, key, value)
        try:
            return replace(
                self, config=self._config_with(sections, shares), instances=self._instances_with(engines)
            )
        except UsageFault as error:
            raise InvalidRequest(error.message, param=next(iter(asked), None)) from error

    def _why_not(self, key: str, known: Mapping[str, Value]) -> str:
        if key.startswith(INSTANCE):
            engines = ", ".join(sorted(self.instances))
            return f"{key:.100}: write {INSTANCE}NAME.drained or .weight, where NAME is one of {engines}."
        if key in dict(_flat(self.config.model_dump(mode="json"))):
            return f"{key:.100} is not changed while the gateway runs: put it into serve.toml and restart."
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"what can be changed: {', '.join(_sections(known))}."
        )
        return f"{key:.100}: no such setting; {hint}"

    def _config_with(self, sections: Mapping[str, Any], shares: Mapping[str, Any]) -> ServeConfig:
        if not sections and not shares:
            return self.config
        tables = {name: getattr(self.config, name) for name in ServeConfig.model_fields}
        for name, over in sections.items():
            tables[name] = merge(tables[name].model_dump(), over)
        if shares:
            pools = (pool.model_dump() for pool in self.config.pools)
            tables["pools"] = [
                merge(pool, {"share": shares.get(pool["name"], pool["share"])}) for pool in pools
            ]
        try:
            return validate(ServeConfig, tables, "Nothing was changed")
        except UsageFault as error:
            message = error.message
            for number, pool in enumerate(self.config.pools):
                message = message.replace(f"  pools.{number}.", f"  {POOL}{pool.name}.")
            raise UsageFault(message) from error

    def _instances_with(self, engines: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Placing]:
        placings = dict(self.instances)
        for name, over in engines.items():
            placings[name] = validate(
                Placing, merge(placings[name].model_dump(), over), f"Nothing was changed; {INSTANCE}{name}"
            )
        return placings


def _flat(tables: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    for name, value in tables.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return found


def _sections(known: Mapping[str, Value]) -> list[str]:
    """As `schedule.*`."""
    return sorted({f"{key.partition('.')[0]}.*" for key in known})
