"""The answer to "what if": one JSON document, was beside would be; `slackwater report` shows it.

``was`` is the recorded policy over the recording, ``would`` the other one over the same recording
and, from `Mark` on, over what the model makes of it (`streams.replay.what_if.model`). Integers;
amounts of time times cores are core-milliseconds, of memory GiB-milliseconds, rounded down.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FORMAT = 1
"""Raised by a change that an older reader would misunderstand."""
GroupKind = Literal["whole", "partition", "pool", "node"]


class Side(msgspec.Struct, frozen=True):
    """One of the policies that were compared, and where it comes from.

    ``versions`` are the recorded ones, in their order; of the other policy none. ``digests`` stand
    beside them.
    """

    source: str  # "recorded", a file, "version:41", or a file with the keys that were swept
    digests: tuple[str, ...]
    versions: tuple[int, ...] = ()
    changes: dict[str, str] = {}  # key -> "old -> new", against the policy recorded last


class Mark(msgspec.Struct, frozen=True):
    """Where the other policy leaves what was recorded, on one node.

    Before it everything is fact. ``modelled_ms``: log time from which the node's samples are the
    model's, because it changed what best-effort work may use or who had to go; -1: never, all its
    samples are as recorded.
    """

    node: str
    partition: int
    offset: int  # in `samples`, of the record that was decided about
    log_ms: int
    decider: str
    was: str  # in words: "best-effort work may use 3.00 cores"
    would: str
    modelled_ms: int = -1

    @property
    def sentence(self) -> str:
        """It in one line, without the time."""
        return f"on node {self.node}: {self.decider}, {self.was} -> {self.would}"


class Figures(msgspec.Struct, frozen=True):
    """What one policy came to over one group of nodes.

    ``commands``: decider -> reason -> count, dry runs apart as "reason (dry run)". ``evictions``:
    reason -> pods, each pod once. ``above_*``: node time in which the node used more than
    `suppress.threshold_percent` of its capacity, by the recorded and by the other policy's
    threshold. ``ill``: node time for which the law called an online pod's pressure or waiting ill.
    ``slo_misses``: reports of services beyond the objective of the recorded policy, where it has
    none of the other one; in ``would`` expected by node use, see the model.
    """

    nodes: int
    node_ms: int  # that were measured: pairs of samples
    commands: dict[str, dict[str, int]]
    evictions: dict[str, int]
    batch_cpu_core_ms: int
    batch_memory_gib_ms: int
    mid_cpu_core_ms: int
    mid_memory_gib_ms: int
    best_effort_core_ms: int  # used
    withheld_core_ms: int  # wanted and not used, by the model of demand
    above_recorded_ms: int
    above_other_ms: int
    ill_ms: int
    slo_reports: int
    slo_misses: int

    @property
    def command_count(self) -> int:
        """All of them."""
        return sum(sum(each.values()) for each in self.commands.values())

    @property
    def evicted_pods(self) -> int:
        """All of them."""
        return sum(self.evictions.values())


class Group(msgspec.Struct, frozen=True):
    """One group of nodes. ``difference``: would - was, of every figure that is a number, and of
    the sums of commands and evictions.
    """

    kind: GroupKind
    name: str
    was: Figures
    would: Figures
    difference: dict[str, int]


class Timeline(msgspec.Struct, frozen=True):
    """Columns over time: value i stands for the step that begins at ``start_ms`` + i x ``step_ms``.

    Offers and bounds as they stand at the end of the step; uses are means over it; null: not known.
    """

    kind: GroupKind
    name: str
    start_ms: int
    step_ms: int
    was: dict[str, list[int | None]]  # the same keys on both sides, units in their names
    would: dict[str, list[int | None]]


class Example(msgspec.Struct, frozen=True):
    """One decider's first decision that differs, both sides in words; "" where it is silent."""

    decider: str
    node: str
    partition: int
    offset: int
    log_ms: int
    was: str
    would: str


class WhatIf(msgspec.Struct, frozen=True):
    """The whole answer. ``mark`` is the earliest of ``marks``; null: the policies say the same."""

    recording: str
    law_version: int
    from_ms: int
    to_ms: int
    partitions: tuple[int, ...]
    pool_label: str
    recorded: Side
    other: Side
    mark: Mark | None
    marks: tuple[Mark, ...]  # one a node, by time
    groups: tuple[Group, ...]  # the whole first
    timelines: tuple[Timeline, ...]  # of the whole, of pools, and of nodes that have a mark
    examples: tuple[Example, ...]
    limits: tuple[str, ...]  # of the model, in words
    problems: tuple[str, ...] = ()  # parts of the recording that could not be used
    format: int = FORMAT

    @property
    def whole(self) -> Group:
        """All nodes together."""
        return self.groups[0]
