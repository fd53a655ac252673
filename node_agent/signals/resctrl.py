"""Last-level cache and memory traffic of each class: the monitoring files of resctrl.

Each class is one resctrl group: that of the isolation settings (slackwater-LS), another one of its
name (LSR, LS, BE), or a group for monitoring alone (``mon_groups``); what no class has is in the
root group. A group has
one directory for each cache (``mon_data/mon_L3_00``; the numbers may have gaps), and each figure
here is the sum over all caches: absent as soon as one of them is.

The hardware's counters are shared and few. A file may say ``Unavailable`` (no reading yet, or
another group has the counter) or ``Error``; the first reading of a counter is its base, one that
fell was given to this group anew. What was never above 0 is suspect: hardware without the counter,
or another tool in possession of it, says 0 for ever.
"""

from __future__ import annotations

import os

from node_agent.actuators.resctrl import MOUNT, PREFIX
from node_agent.cgroup.once import read_once
from node_agent.signals.base import Value
from schemas.columns import CACHE_GROUPS

NAME = "resctrl"
FIGURES = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
_LEVEL = FIGURES[0]
_UNSAID = (b"Unavailable", b"Error", b"Unassigned")


def there(root: str) -> bool:
    """Whether resctrl is mounted and can monitor."""
    return os.path.isdir(f"{root}/{MOUNT}/info/L3_MON")


def parse(data: bytes) -> Value:
    """One figure of one cache, in bytes; None where the kernel has none to give."""
    word = data.strip()
    return None if word in _UNSAID else int(word)


class ClassCache:
    """The reader of one class, or of the root group by the name ``rest``."""

    name = NAME

    def __init__(self, root: str, group: str) -> None:
        """``root``: of the file system, without a slash at its end."""
        self._root, self._group = root, group
        self.columns = tuple(
            f"{figure}_{group}_bytes" for figure in ("llc", "bandwidth", "bandwidth_local")
        )
        self._last: dict[str, dict[str, int]] = {}  # figure -> cache -> last reading
        self._grown: dict[str, int] = {}
        self._seen: set[str] = set()  # figures that were once above 0

    def there(self) -> bool:
        """Whether the group exists and is monitored."""
        return there(self._root) and self._home() is not None

    def read(self, _now_us: int) -> tuple[Value, ...] | None:
        """(cache held, traffic, traffic within the socket); the traffic counts from 0."""
        home = self._home()
        if home is None:
            return None
        caches = sorted(name for name in os.listdir(home) if name.startswith("mon_L3_"))
        return tuple(self._figure(home, caches, figure) for figure in FIGURES)

    def _figure(self, home: str, caches: list[str], figure: str) -> Value:
        now: dict[str, int] = {}
        for cache in caches:
            data = read_once(f"{home}/{cache}/{figure}")
            said = None if data is None else parse(data)
            if said is not None:
                now[cache] = said
        if any(now.values()):
            self._seen.add(figure)
        told = bool(caches) and len(now) == len(caches) and figure in self._seen
        if figure == _LEVEL:
            return sum(now.values()) if told else None
        before, self._last[figure] = self._last.get(figure, {}), now
        steps = [now[cache] - before[cache] for cache in now if cache in before]
        if any(step < 0 for step in steps) or now.keys() != before.keys():
            told = False
        else:
            self._grown[figure] = self._grown.get(figure, 0) + sum(steps)
        return self._grown[figure] if told else None

    def _home(self) -> str | None:
        """The group's directory of counters."""
        top = f"{self._root}/{MOUNT}"
        name = self._group.upper()
        homes = tuple(f"{top}/{each}" for each in (f"{PREFIX}{name}", name, f"mon_groups/{name}"))
        if self._group == "rest":
            homes = (top,)
        return next((f"{home}/mon_data" for home in homes if os.path.isdir(home)), None)


def readers(root: str) -> tuple[ClassCache, ...]:
    """One a class, and one for the rest."""
    return tuple(ClassCache(root, group) for group in CACHE_GROUPS)
