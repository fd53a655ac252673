"""Figures and columns of groups of nodes, was beside would, out of the tallies of all partitions.

Called by `streams.replay.what_if.run`. A group is the whole, a partition, a pool (nodes that carry
the same value of a label) or one node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from streams.replay.what_if.recorded import Recorded
from streams.replay.what_if.result import Figures, Group, GroupKind, Timeline
from streams.replay.what_if.slo import PERMILLE, Misses, misses
from streams.replay.what_if.supposed import Supposed
from streams.replay.what_if.tally import OFFERS, US_PER_MS, NodeTally, Tally

MILLI = 1000
GIB_SHIFT = 30
NO_POOL = "(no label)"
MOST_NODES_OVER_TIME = 100
"""Of so many nodes with a mark the columns over time are kept; the others have figures alone."""


@dataclass(frozen=True, slots=True)
class Member:
    """One node of a partition, both sides."""

    name: str
    pair: Pair


@dataclass(frozen=True, slots=True)
class Pair:
    """One partition, both sides, and what its services' reports came to."""

    was: Recorded
    would: Supposed
    slo: dict[str, Misses]

    @classmethod
    def of(cls, was: Recorded, would: Supposed) -> Pair:
        """Set two runs beside each other."""
        return cls(was, would, misses(was.heard, would.heard))


def groups_of(pairs: Sequence[Pair], pool_label: str) -> list[Group]:
    """The whole first, then partitions, pools, nodes, each sorted by name."""
    return [_group(kind, name, members) for kind, name, members in _members(pairs, pool_label)]


def timelines_of(pairs: Sequence[Pair], pool_label: str, marked: Iterable[str]) -> list[Timeline]:
    """Of the whole, of pools, and of nodes that have a mark, the first ones by time."""
    wanted = set(list(marked)[:MOST_NODES_OVER_TIME])
    return [
        _timeline(kind, name, members)
        for kind, name, members in _members(pairs, pool_label)
        if kind in ("whole", "pool") or (kind == "node" and name in wanted)
    ]


def _members(pairs: Sequence[Pair], pool_label: str) -> list[tuple[GroupKind, str, list[Member]]]:
    found: dict[tuple[GroupKind, str], list[Member]] = defaultdict(list)
    kinds: tuple[GroupKind, ...] = ("whole", "partition", "pool", "node")
    for pair in pairs:
        labels = pair.was.tally.labels | pair.would.tally.labels
        for node in sorted(pair.was.tally.nodes.keys() | pair.would.tally.nodes.keys()):
            member = Member(node, pair)
            names = (
                "",
                str(pair.was.span.partition),
                labels.get(node, {}).get(pool_label, ""),
                node,
            )
            for kind, name in zip(kinds, names, strict=True):
                found[kind, name or (NO_POOL if kind == "pool" else "")].append(member)
    found.setdefault(("whole", ""), [])
    order = sorted(
        found,
        key=lambda key: (kinds.index(key[0]), len(key[1]) if key[0] == "partition" else 0, key[1]),
    )
    return [(kind, name, found[kind, name]) for kind, name in order]


def _group(kind: GroupKind, name: str, members: list[Member]) -> Group:
    was, would = _figures(members, other=False), _figures(members, other=True)
    before, after = _numbers(was), _numbers(would)
    return Group(kind, name, was, would, {key: after[key] - before[key] for key in before})


def _numbers(figures: Figures) -> dict[str, int]:
    """Every figure that is a number, and the sums of those by reason."""
    said = msgspec.structs.asdict(figures)
    numbers = {name: value for name, value in said.items() if isinstance(value, int)}
    return numbers | {"commands": figures.command_count, "evictions": figures.evicted_pods}


def _figures(members: list[Member], *, other: bool) -> Figures:
    commands: dict[str, dict[str, int]] = {}
    evictions: dict[str, int] = {}
    sums: dict[str, int] = defaultdict(int)
    offered = [0] * len(OFFERS)
    for member in members:
        side = member.pair.would if other else member.pair.was
        _add_said(side.tally, member.name, commands, evictions)
        node = side.tally.nodes.get(member.name)
        for name, value in _above(member, other=other).items():
            sums[name] += value
        slo = member.pair.slo.get(member.name, Misses())
        sums["slo_reports"] += slo.reports
        sums["slo_misses"] += slo.would if other else slo.was
        if node is not None:
            _add_node(node, sums, offered)
    batch_cpu, batch_memory, mid_cpu, mid_memory = offered
    return Figures(
        nodes=len(members),
        node_ms=sums["measured_us"] // US_PER_MS,
        commands={name: dict(sorted(each.items())) for name, each in sorted(commands.items())},
        evictions=dict(sorted(evictions.items())),
        batch_cpu_core_ms=batch_cpu // MILLI,
        batch_memory_gib_ms=batch_memory >> GIB_SHIFT,
        mid_cpu_core_ms=mid_cpu // MILLI,
        mid_memory_gib_ms=mid_memory >> GIB_SHIFT,
        best_effort_core_ms=sums["used"] // (MILLI * US_PER_MS),
        withheld_core_ms=sums["withheld"] // (MILLI * US_PER_MS),
        above_recorded_ms=sums["recorded"] // US_PER_MS,
        above_other_ms=sums["other"] // US_PER_MS,
        ill_ms=sums["ill_ms"],
        slo_reports=sums["slo_reports"],
        slo_misses=sums["slo_misses"] // PERMILLE,
    )


def _add_said(
    tally: Tally, node: str, commands: dict[str, dict[str, int]], evictions: dict[str, int]
) -> None:
    for (decider, reason), count in tally.commands.get(node, {}).items():
        by_reason = commands.setdefault(decider, {})
        by_reason[reason] = by_reason.get(reason, 0) + count
    for reason in tally.evicted.get(node, {}).values():
        evictions[reason] = evictions.get(reason, 0) + 1


def _add_node(node: NodeTally, sums: dict[str, int], offered: list[int]) -> None:
    for name in ("measured_us", "used", "withheld", "ill_ms"):
        sums[name] += getattr(node, name)
    for i, amount in enumerate(node.offered):
        offered[i] += amount


def _above(member: Member, *, other: bool) -> dict[str, int]:
    """Microseconds above the recorded and the other policy's threshold."""
    pair, name = member.pair, member.name
    if other:
        return {
            "recorded": pair.would.above_recorded_us.get(name, 0),
            "other": pair.would.above_other_us.get(name, 0),
        }
    node, percent = pair.was.tally.nodes.get(name), pair.would.thresholds.get(name)
    own = pair.was.above_us.get(name, 0)
    by_other = own if node is None or percent is None else node.above_us(percent)
    return {"recorded": own, "other": by_other}


def _timeline(kind: GroupKind, name: str, members: list[Member]) -> Timeline:
    sides: list[dict[str, list[int | None]]] = []
    steps = members[0].pair.was.span.steps if members else None
    for other in (False, True):
        columns: dict[str, list[int | None]] = {}
        for member in members:
            tally = (member.pair.would if other else member.pair.was).tally
            node = tally.nodes.get(member.name)
            for key, values in (node.over_time() if node is not None else {}).items():
                held = columns.get(key)
                columns[key] = values if held is None else _sum(held, values)
        sides.append(columns)
    start_ms, step_ms = (steps.start_ms, steps.step_ms) if steps is not None else (0, 1)
    return Timeline(kind, name, start_ms, step_ms, *sides)


def _sum(one: list[int | None], other: list[int | None]) -> list[int | None]:
    """Side by side; what only one of them knows counts alone."""
    return [b if a is None else a if b is None else a + b for a, b in zip(one, other, strict=True)]
