"""The machine's own figures in one sweep: single files, and readers of several files.

Called by `node_agent.sampler`. What every sample carries is read every time; the rest takes turns,
a source or a reader at a time, and only where this machine has it: that is looked at once a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node_agent.cgroup.handles import NodeFiles
from node_agent.signals.base import NodeReader, NodeSource, Value
from node_agent.signals.group_sweep import Row, When
from node_agent.signals.meter import Meter, SamplerStats, SignalStats
from schemas.columns import NODE_COLUMNS, SECOND_MS

LOOK_US = 60_000_000


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is read at one go; ``key`` is its name when it takes turns."""

    key: str
    columns: tuple[str, ...]
    every_ms: int
    origin: NodeSource | NodeReader
    stats: SignalStats

    @property
    def takes_turns(self) -> bool:
        return self.every_ms > SECOND_MS


class MachineSweep:
    """The signals of one machine that belong to no group."""

    def __init__(
        self,
        files: NodeFiles,
        signals: Sequence[tuple[str, Sequence[NodeSource]]],
        readers: Sequence[NodeReader],
        stats: SamplerStats,
    ) -> None:
        """``signals``: name and sources of each."""
        self._files = files
        self._units = [
            *(_unit(source, stats.of(name)) for name, sources in signals for source in sources),
            *(_unit(reader, stats.of(reader.name)) for reader in readers),
        ]
        for unit in self._units:
            unit.stats.essential |= not unit.takes_turns
        self._there: frozenset[str] = frozenset()
        self._look_us: int | None = None

    def turns(self) -> dict[str, int]:
        """What takes turns and is there, as last looked at."""
        return {u.key: u.every_ms for u in self._units if u.takes_turns and u.key in self._there}

    def look(self, now_us: int) -> bool:
        """Look once a minute what this machine has; True when that has changed."""
        if self._look_us is not None and now_us - self._look_us < LOOK_US:
            return False
        self._look_us = now_us
        found = frozenset(u.key for u in self._units if u.takes_turns and self._has(u))
        changed, self._there = found != self._there, found
        return changed

    def read(self, when: When) -> dict[str, Value]:
        """The due columns; None for what cannot be had."""
        columns: dict[str, Value] = {}
        for unit in self._units:
            each_time = when.second or unit.every_ms == 0
            if unit.key in when.turn if unit.takes_turns else each_time:
                row = None if unit.stats.resting(when.now_us) else self._read(unit, when)
                columns |= dict(zip(unit.columns, row or (None,) * len(unit.columns), strict=True))
        return columns

    def _read(self, unit: _Unit, when: When) -> Row:
        meter = Meter(unit.stats)
        row: Row = None
        try:
            if isinstance(unit.origin, NodeSource):
                data = self._files.read(unit.origin.file, when.now_us)
                row = None if data is None else unit.origin.parse(data)
            else:
                row = unit.origin.read(when.now_us)
        except Exception as error:  # noqa: BLE001  (it harms no other)
            meter.fail(error)
        meter.reads += 1
        meter.absent += row is None and not meter.errors
        meter.book(when.sweep, when.now_us)
        return row

    def _has(self, unit: _Unit) -> bool:
        if isinstance(unit.origin, NodeSource):
            return unit.origin.there(self._files.root)
        return unit.origin.there()


def _unit(origin: NodeSource | NodeReader, stats: SignalStats) -> _Unit:
    every_ms = min(NODE_COLUMNS[name].every_ms for name in origin.columns)
    return _Unit(origin.columns[0], origin.columns, every_ms, origin, stats)
