"""What one policy came to, node by node: sums of time times amount, and columns over time.

Filled by `streams.replay.what_if.world` while a partition is folded; `what_if.groups` makes figures
of it. Whole numbers: millicores x milliseconds, bytes x milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agents.log import Output
from schemas.records import Capacity, Command, Signal
from streams.replay.what_if.standing import EVICTORS
from streams.replay.what_if.twin import Seen

PERCENTS = 102
"""Bins of node use: the smallest whole percent of capacity that it does not exceed; 101: more."""
OFFERS = ("batch_cpu_milli", "batch_memory_bytes", "mid_cpu_milli", "mid_memory_bytes")
STANDING = (*OFFERS, "allow_milli")
MEANS = ("node_milli", "best_effort_milli", "wanted_milli")
ALLOW = len(OFFERS)
US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of all columns over time."""

    start_ms: int
    step_ms: int
    count: int

    def at(self, log_ms: int) -> int:
        """The step in which a moment lies, within what there is."""
        return min(max((log_ms - self.start_ms) // self.step_ms, 0), self.count - 1)


class NodeTally:
    """One node's. ``standing`` are the values of `STANDING` now; None: nothing said."""

    __slots__ = (
        "columns", "ill", "ill_ms", "means", "measured_us", "offered", "percents", "since_ms",
        "standing", "steps", "used", "withheld",
    )  # fmt: skip

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.standing: list[int | None] = [None] * len(STANDING)
        self.since_ms = steps.start_ms
        self.columns: list[list[int | None]] = [[] for _ in STANDING]
        self.means = [[0] * steps.count for _ in (*MEANS, "elapsed_us")]
        self.offered = [0] * len(OFFERS)
        self.ill = False
        self.ill_ms = 0
        self.measured_us = self.used = self.withheld = 0
        self.percents = [0] * PERCENTS  # microseconds by bin

    def upto(self, log_ms: int) -> None:
        """Let time pass up to a moment; what stands, stood."""
        elapsed_ms = log_ms - self.since_ms
        if elapsed_ms <= 0:
            return
        self.since_ms = log_ms
        for i in range(len(OFFERS)):
            self.offered[i] += (self.standing[i] or 0) * elapsed_ms
        self.ill_ms += elapsed_ms * self.ill
        missing = self.steps.at(log_ms) - len(self.columns[0])
        if missing > 0:
            for column, value in zip(self.columns, self.standing, strict=True):
                column.extend([value] * missing)

    def measured(self, seen: Seen, log_ms: int) -> None:
        """One interval that ends at a moment; what leads up to the first step does not count."""
        if log_ms < self.steps.start_ms:
            return
        elapsed_us, capacity = seen.interval.elapsed_us, max(seen.interval.capacity_milli, 1)
        self.measured_us += elapsed_us
        self.used += seen.used_milli * elapsed_us
        self.withheld += (seen.wants_milli - seen.used_milli) * elapsed_us
        self.percents[bin_of(seen.node_milli, capacity)] += elapsed_us
        step = self.steps.at(log_ms)
        values = (seen.node_milli, seen.used_milli, seen.wants_milli, 1)
        for mean, value in zip(self.means, values, strict=True):
            mean[step] += value * elapsed_us

    def above_us(self, percent: int) -> int:
        """Time in which the node used more than so much of its capacity."""
        return sum(self.percents[percent + 1 :])

    def close(self, log_ms: int) -> None:
        """The recording ends; every column has all its steps, what lies behind is not known."""
        self.upto(log_ms)
        for column, value in zip(self.columns, self.standing, strict=True):
            column.extend([value] * (self.steps.at(log_ms) + 1 - len(column)))
            column.extend([None] * (self.steps.count - len(column)))

    def forget_over_time(self) -> None:
        """Keep the sums alone."""
        self.columns, self.means = [], []

    def over_time(self) -> dict[str, list[int | None]]:
        """All columns by name."""
        found = dict(zip(STANDING, self.columns, strict=True))
        elapsed = self.means[-1]
        for name, sums in zip(MEANS, self.means, strict=False):
            found[name] = [
                total // us if us else None for total, us in zip(sums, elapsed, strict=True)
            ]
        return found


@dataclass(slots=True)
class Tally:
    """All nodes of a partition under one policy."""

    steps: Steps
    nodes: dict[str, NodeTally] = field(default_factory=dict)
    commands: dict[str, Counter[tuple[str, str]]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    evicted: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    labels: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, node: str) -> NodeTally:
        """A node's tally."""
        found = self.nodes.get(node)
        if found is None:
            found = self.nodes[node] = NodeTally(self.steps)
        return found

    def begin(self, standing: Mapping[tuple[str, str], tuple[int, ...]]) -> None:
        """What was said before (`standing_in`) stands from the first moment on."""
        for (node, decider), value in standing.items():
            held = self.of(node).standing
            if decider == "capacity":
                held[:ALLOW] = value[:ALLOW]
            else:
                held[ALLOW] = value[0]

    def take(self, outputs: Iterable[Output]) -> None:
        """Take over what was said; before the first step it only stands."""
        for output in outputs:
            record = output.record
            if isinstance(record, Command):
                self._command(record)
            elif isinstance(record, Capacity):
                node = self.of(record.node)
                node.upto(record.cause.log_ms)
                node.standing[:ALLOW] = [getattr(record, name) for name in OFFERS]
            elif isinstance(record, Signal):
                node = self.of(record.node)
                node.upto(record.cause.log_ms)
                node.ill = record.ill

    def _command(self, command: Command) -> None:
        counts = command.cause.log_ms >= self.steps.start_ms
        reason = f"{command.reason} (dry run)" if command.dry_run else command.reason
        if counts:
            self.commands[command.node][command.decider, reason] += 1
        if command.decider == "suppress":
            node = self.of(command.node)
            node.upto(command.cause.log_ms)
            node.standing[ALLOW] = command.allow_milli
        elif counts and command.decider in EVICTORS and not command.dry_run:
            for uid in command.pods:
                self.evicted[command.node].setdefault(uid, command.reason)

    def forget_over_time(self) -> None:
        """Keep the sums alone."""
        for node in self.nodes.values():
            node.forget_over_time()

    def close(self, log_ms: int) -> None:
        """The recording ends."""
        for node in self.nodes.values():
            node.close(log_ms)


def bin_of(used_milli: int, capacity_milli: int) -> int:
    """The smallest whole percent of capacity, as the law takes it, that is not exceeded."""
    percent = used_milli * 100 // capacity_milli
    while percent < PERCENTS - 1 and used_milli > capacity_milli * percent // 100:
        percent += 1
    return min(percent, PERCENTS - 1)
