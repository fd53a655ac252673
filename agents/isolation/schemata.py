"""The text of resctrl's `schemata` files: written for a group, read back from one.

Called beside `agents.isolation.resctrl` for one node at a time: only where a mask changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_L3_ENTRY = re.compile(r"(\d{1,9})=([0-9a-fA-F]{1,16})", re.ASCII)
_MB_ENTRY = re.compile(r"(\d{1,9})=\s*(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schemata:
    """Values by domain id: cache ways as a mask, bandwidth in the vendor's unit."""

    l3: Mapping[int, int] = field(default_factory=dict)
    mb: Mapping[int, int] = field(default_factory=dict)

    @property
    def l3_valid(self) -> bool:
        """Whether there are cache domains, each with ways."""
        return bool(self.l3) and all(mask > 0 for mask in self.l3.values())


def l3_line(ids: Iterable[int], mask: int) -> str:
    """The line of one mask for all caches; "" without a mask or a cache: nothing is written."""
    return _line("L3", ids, f"{mask:x}") if mask > 0 else ""


def mb_line(ids: Iterable[int], value: int) -> str:
    """The line of one bandwidth for all domains; "" without a value or a domain."""
    return _line("MB", ids, f"{value}") if value > 0 else ""


def parse(content: str, domains: int) -> Schemata | None:
    """What a schemata file says of L3 and MB; None where it cannot be read.

    ``domains`` is how many entries a line must have, -1: as many as the first. Resources of other
    names are passed over.
    """
    found: dict[str, dict[int, int]] = {"L3": {}, "MB": {}}
    for line in content.splitlines():
        name, _, entries = line.strip().partition(":")
        if name not in found:
            continue
        values = _entries(entries, _L3_ENTRY if name == "L3" else _MB_ENTRY)
        domains = len(values or ()) if domains < 0 else domains
        if values is None or len(values) != domains:
            return None
        found[name] = values
    return Schemata(found["L3"], found["MB"])


def _line(name: str, ids: Iterable[int], value: str) -> str:
    entries = "".join(f"{one}={value};" for one in sorted(ids))
    return f"{name}:{entries}" if entries else ""


def _entries(text: str, form: re.Pattern[str]) -> dict[int, int] | None:
    """Values by id; None where an entry is none or an id comes twice."""
    values: dict[int, int] = {}
    for entry in filter(None, text.strip().split(";")):
        match = form.fullmatch(entry.strip())
        if match is None or int(match[1]) in values:
            return None
        values[int(match[1])] = int(match[2], 16) if form is _L3_ENTRY else int(match[2])
    return values
