"""Typed values out of the inventory file; each error names file, key and what is allowed.

Called by `node_agent.inventory_file` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from agents.eviction.labels import FEATURES, INT32, NO_FEATURE
from agents.lending.reserved import cpus_of
from node_agent.cgroup.paths import GroupPathError, normal_group
from node_agent.inventory import InventoryError
from schemas.records import BurstWish

_FEATURES = (*FEATURES, NO_FEATURE)


@dataclass(frozen=True, slots=True)
class Keys:
    """One file. Every reader takes the key, for the message, and the value; all raise
    `InventoryError`.
    """

    path: str

    def wrong(self, key: str, what: str) -> InventoryError:
        return InventoryError(f"{self.path}: {key}: {what}")

    def mapping(self, key: str, value: object, allowed: tuple[str, ...] | None) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise self.wrong(key, f"expected keys and values, found {_kind(value)}")
        for name in value:
            if allowed is not None and name not in allowed:
                names = ", ".join(allowed)
                raise self.wrong(key, f"unknown key {name!r}; allowed: {names}")
        return value

    def listed(self, key: str, value: object, what: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.wrong(key, f"expected a list of {what}, found {_kind(value)}")
        return value

    def text(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"expected text, found {_kind(value)}; quote numbers")
        return value

    def texts(self, key: str, value: object) -> dict[str, str]:
        said = self.mapping(key, value, None)
        return {name: self.text(f"{key}.{name}", text) for name, text in said.items()}

    def choice(self, key: str, value: object, allowed: tuple[str, ...]) -> str:
        if value not in allowed or not value:
            names = ", ".join(name for name in allowed if name)
            raise self.wrong(key, f"{value!r} is unknown; allowed: {names}")
        return str(value)

    def flag(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.wrong(key, "expected true or false")
        return value

    def integer(self, key: str, value: object, within: range) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(key, f"expected a whole number, found {_kind(value)}")
        if value not in within:
            raise self.wrong(key, f"{value} is outside {within[0]} .. {within[-1]}")
        return value

    def number(self, key: str, value: object) -> int:
        return self.integer(key, value, INT32)

    def amount(self, key: str, value: object) -> int:
        return self.integer(key, value, range(1 << 62))

    def cpus(self, key: str, value: object) -> tuple[int, ...]:
        """A list such as 0-3,8; YAML takes a single CPU for a number."""
        said = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        try:
            return tuple(sorted(cpus_of(self.text(key, said))))
        except InventoryError:
            raise
        except ValueError as error:
            raise self.wrong(key, f"expected CPUs such as 0-3,8; {error}") from error

    def wish(self, key: str, value: object) -> BurstWish:
        said = self.mapping(key, value, tuple(field.name for field in fields(BurstWish)))
        try:
            return msgspec.convert(dict(said), BurstWish)
        except msgspec.ValidationError as error:
            raise self.wrong(key, str(error)) from error

    def features(self, key: str, value: object) -> tuple[str, ...]:
        """Who may evict the pod; to allow nobody has a word of its own, an empty list has none."""
        if not isinstance(value, list) or not value:
            raise self.wrong(key, f"expected a list of features, found {_kind(value)}")
        return tuple(self.choice(f"{key}[{i}]", name, _FEATURES) for i, name in enumerate(value))

    def group(self, key: str, value: object) -> str:
        try:
            return normal_group(self.text(key, value))
        except GroupPathError as error:
            raise self.wrong(key, str(error)) from error


def _kind(value: object) -> str:
    return "nothing" if value is None or value == "" else f"{type(value).__name__} {value!r}"


def fields_of(said: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Those of ``names`` that were said."""
    return {name: said[name] for name in names if name in said}
