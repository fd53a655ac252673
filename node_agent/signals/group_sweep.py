"""The files of all groups in one sweep, signal by signal: kept descriptors in, columns out.

Called by `node_agent.sampler`, once for the pods and once for the best-effort root. Each file is
read from all groups before it is parsed: the two loops are short, and what two signals read from
one file (cpu.stat of v2) is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node_agent.cgroup.files import FILES
from node_agent.cgroup.handles import GroupFiles, read_all
from node_agent.cgroup.layout import Layout
from node_agent.signals.base import GroupSignal, GroupSource, Input, Parse, Value
from node_agent.signals.meter import Meter, SamplerStats, SignalStats
from schemas.columns import NODE_COLUMNS, POD_COLUMNS, SECOND_MS, Column

Row = tuple[Value, ...] | None
Contents = list[bytes | None]


@dataclass(frozen=True, slots=True)
class When:
    """What is due in one sweep."""

    sweep: int
    now_us: int
    second: bool  # columns of each second are due
    turn: frozenset[str]  # slower columns, and things of the machine, whose turn it is

    def due(self, column: Column) -> bool:
        if column.every_ms > SECOND_MS:
            return column.name in self.turn
        return self.second or column.every_ms == 0


@dataclass(frozen=True, slots=True)
class _Step:
    """One source with the input of this machine's version; no files: it cannot be had here."""

    columns: tuple[Column, ...]
    files: tuple[str, ...]
    parse: Parse | None
    stats: SignalStats


class GroupSweep:
    """The signals of groups on one machine."""

    def __init__(self, layout: Layout, signals: Sequence[GroupSignal], stats: SamplerStats) -> None:
        """Chooses each source's input by the version of its controller on this machine."""
        root = layout.root.rstrip("/")
        self._steps = [
            _step(layout, source, stats.of(signal.NAME))
            for signal in signals
            for source in signal.SOURCES
            if source.there(root)
        ]
        for step in self._steps:
            if any(column.every_ms <= SECOND_MS for column in step.columns):
                step.stats.essential = True

    def turns(self) -> dict[str, int]:
        """The columns that take turns and that this machine may have."""
        return {
            column.name: column.every_ms
            for step in self._steps
            for column in step.columns
            if step.files and column.every_ms > SECOND_MS
        }

    def read(self, groups: Sequence[GroupFiles], when: When) -> dict[str, list[Value]]:
        """The due columns, one value a group; a group that went is left (`GroupFiles.leave`)."""
        columns: dict[str, list[Value]] = {}
        latest: dict[str, Contents] = {}
        for step in self._steps:
            due = [(i, column.name) for i, column in enumerate(step.columns) if when.due(column)]
            if not due:
                continue
            rows: Sequence[Row] = [None] * len(groups)
            if step.parse is not None and not step.stats.resting(when.now_us):
                meter = Meter(step.stats)
                if step.files[0] not in latest:
                    latest = {name: _contents(name, groups, when, meter) for name in step.files}
                rows = _parsed(step.parse, [latest[name] for name in step.files], meter)
                meter.reads += len(groups)
                meter.absent += latest[step.files[0]].count(None)
                meter.book(when.sweep, when.now_us)
            for i, name in due:
                columns[name] = [None if row is None else row[i] for row in rows]
        return columns


def _contents(name: str, groups: Sequence[GroupFiles], when: When, meter: Meter) -> Contents:
    return read_all(groups, name, when.now_us, meter.fail)


def _parsed(parse: Parse, files: list[Contents], meter: Meter) -> Sequence[Row]:
    """One row a group; what cannot be parsed is counted and has none."""
    if len(files) == 1:
        try:
            return [None if data is None else parse(data) for data in files[0]]
        except Exception:  # noqa: BLE001, S110  (found and counted below, one by one)
            pass
    rows: list[Row] = []
    for contents in zip(*files, strict=True):
        row: Row = None
        if None not in contents:
            try:
                row = parse(*contents)
            except Exception as error:  # noqa: BLE001  (it harms no other)
                meter.fail(error)
        rows.append(row)
    return rows


def _step(layout: Layout, source: GroupSource, stats: SignalStats) -> _Step:
    known = {**NODE_COLUMNS, **POD_COLUMNS}
    columns = tuple(known[name] for name in source.columns)
    chosen: Input | None = None
    for version, candidate in ((1, source.v1), (2, source.v2)):
        if candidate is not None:
            home = layout.hierarchy(FILES[candidate.files[0]].controller)
            if home is not None and home.version == version:
                chosen = candidate
    if chosen is None:
        return _Step(columns, (), None, stats)
    return _Step(columns, tuple(_first(layout, name) for name in chosen.files), chosen.parse, stats)


def _first(layout: Layout, name: str) -> str:
    """The first name of the same file on this machine: it is opened and read once."""
    place = layout.place(name, "any")
    return next((n for n in FILES if place is not None and layout.place(n, "any") == place), name)
