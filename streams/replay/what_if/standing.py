"""What is said to each node, by one policy and by the other, and where they part.

`Log` keeps what the recorded policy said, small enough for a fleet's hour and to be handed to other
processes; `Parting` walks it beside what the other policy says. Reasons, causes and expiry are
left out: two policies say the same while a node could not tell them apart.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.log import Output
from agents.state import PartitionState
from schemas import codec
from schemas.records import Capacity, Command
from streams.explain.words import cores, size
from streams.replay.what_if.result import Mark

SUPPRESS, CAPACITY, ISOLATE = "suppress", "capacity", "isolate"
EVICTORS = ("evict_memory", "evict_cpu")
DISABLED = "disabled"
"""The reason of a command that lifts every bound."""
NOTHING: tuple[Any, ...] = ()


class Bound(NamedTuple):
    """What best-effort work may use: an amount, on these CPUs if any; ``free``: no bound at all."""

    allow_milli: int
    cpus: tuple[int, ...] = ()
    free: bool = False


class Event(NamedTuple):
    """Something that was said to a node; ``value`` is compared, and `worded` puts it in words."""

    offset: int
    log_ms: int
    node: str
    decider: str
    value: tuple[Any, ...]


def events_of(outputs: Iterable[Output]) -> Iterator[Event]:
    """What of a batch of outputs is said to nodes, in their order."""
    for output in outputs:
        record = output.record
        if isinstance(record, Command):
            value = _value_of(record)
        elif isinstance(record, Capacity):
            value = (
                record.batch_cpu_milli, record.batch_memory_bytes, record.mid_cpu_milli,
                record.mid_memory_bytes, record.new_work,
            )  # fmt: skip
        else:
            continue
        cause = record.cause
        yield Event(cause.offset, cause.log_ms, record.node, output.decider, value)


def _value_of(command: Command) -> tuple[Any, ...]:
    if command.decider == SUPPRESS:
        return Bound(command.allow_milli, tuple(command.cpus), command.reason == DISABLED)
    if command.decider in EVICTORS:
        return (command.dry_run, *command.pods)
    return (codec.encode(command.settings),)


def worded(decider: str, value: tuple[Any, ...]) -> str:
    """A value in a few words."""
    if decider in EVICTORS:
        dry = " (a dry run)" if value and value[0] else ""
        return f"{', '.join(value[1:])} told to leave{dry}" if value else "nobody has to leave"
    if not value:
        return "nothing said"
    if isinstance(value, Bound):
        if value.free:
            return "best-effort work is not bound"
        on = f" on {len(value.cpus)} CPUs" if value.cpus else ""
        return f"best-effort work may use {cores(value.allow_milli)} cores{on}"
    if decider == CAPACITY:
        batch, memory, mid, mid_memory, new = value
        said = f"offered are {cores(batch)} cores and {size(memory)} to batch work"
        if mid or mid_memory:
            said += f", {cores(mid)} cores and {size(mid_memory)} to mid work"
        return said if new else f"{said}, no new work"
    return "other settings"


def standing_in(state: PartitionState) -> dict[tuple[str, str], tuple[Any, ...]]:
    """What a state has said last, by (node, decider), as far as a state knows it."""
    found: dict[tuple[str, str], tuple[Any, ...]] = {}
    for seat in state.seats.values():
        nodes, row = state.nodes, seat.row
        allow, free = int(nodes["said_milli"][row]), bool(nodes["said_free"][row])
        if allow >= 0:
            found[seat.name, SUPPRESS] = Bound(allow, seat.cpus, free)
        if int(nodes["said_ms"][row]) >= 0:
            amounts = nodes["said"][row].tolist()
            found[seat.name, CAPACITY] = (*amounts, bool(nodes["said_new"][row]))
    return found


@dataclass(slots=True)
class Log:
    """Events of one partition in offset order, as columns; equal values are held once."""

    names: list[str] = field(default_factory=list)
    deciders: list[str] = field(default_factory=list)
    values: list[tuple[Any, ...]] = field(default_factory=list)
    columns: array[int] = field(default_factory=lambda: array("q"))
    _known: dict[Any, int] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Append one."""
        offset, log_ms, node, decider, value = event
        self.columns.extend((
            offset, log_ms, self._number("node", self.names, node),
            self._number("decider", self.deciders, decider),
            self._number("value", self.values, value),
        ))  # fmt: skip

    def __len__(self) -> int:
        return len(self.columns) // len(Event._fields)

    def __getitem__(self, at: int) -> Event:
        width = len(Event._fields)
        offset, log_ms, node, decider, value = self.columns[at * width : at * width + width]
        return Event(offset, log_ms, self.names[node], self.deciders[decider], self.values[value])

    def _number(self, kind: str, held: list[Any], what: Any) -> int:
        key = (kind, what)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(held)
            held.append(what)
        return number

    def sealed(self) -> Log:
        """It without what only adding needs."""
        self._known = {}
        return self


class Parting:
    """The recorded policy's log beside the other's events, as far as both have come."""

    def __init__(self, log: Log, state: PartitionState) -> None:
        self._log = log
        self._next = 0
        self._partition = state.partition
        self._cold = state.at < 0
        standing = standing_in(state)
        self.was, self.would = dict(standing), dict(standing)
        self.marks: dict[str, Mark] = {}
        self.first: dict[str, Mark] = {}  # of each decider, the first on any node

    def upto(self, offset: int, said: Iterable[Event]) -> Iterator[tuple[list[Event], list[Event]]]:
        """Take over all of both sides up to ``offset``; what each said, offset by offset.

        ``said``: the other policy's events, above all that was taken before. Marks are set.
        """
        theirs = sorted(said)
        at = 0
        while True:
            ours = self._log[self._next].offset if self._next < len(self._log) else offset + 1
            other = theirs[at].offset if at < len(theirs) else offset + 1
            now = min(ours, other)
            if now > offset:
                return
            was: list[Event] = []
            would: list[Event] = []
            while self._next < len(self._log) and self._log[self._next].offset == now:
                was.append(self._log[self._next])
                self._next += 1
            while at < len(theirs) and theirs[at].offset == now:
                would.append(theirs[at])
                at += 1
            self._take(was, would)
            yield was, would

    def _take(self, was: list[Event], would: list[Event]) -> None:
        for events, standing in ((was, self.was), (would, self.would)):
            for event in events:
                standing[event.node, event.decider] = event.value
        told = {(event.node, event.decider): event for event in (*was, *would)}
        for (node, decider), event in sorted(told.items()):
            one, other = self.was.get((node, decider)), self.would.get((node, decider))
            if decider in EVICTORS:  # no order stands: it is given, or not
                one, other = _given(was, node, decider), _given(would, node, decider)
            elif decider == ISOLATE and not self._cold and (one is None or other is None):
                continue  # an image does not say what was settled before
            if one != other:
                self._mark(event, one or NOTHING, other or NOTHING)

    def _mark(self, event: Event, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
        decider = event.decider
        mark = Mark(
            event.node, self._partition, event.offset, event.log_ms, decider,
            worded(decider, one), worded(decider, other),
        )  # fmt: skip
        self.marks.setdefault(event.node, mark)
        self.first.setdefault(decider, mark)


def _given(events: list[Event], node: str, decider: str) -> tuple[Any, ...] | None:
    return next((e.value for e in events if (e.node, e.decider) == (node, decider)), None)
