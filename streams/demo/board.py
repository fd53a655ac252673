"""What the topics have said so far, node by node: fed by `reader`, drawn by `view`, summed up at
the end. Pure: records in, figures out; it reads no clock.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from agents.eviction.node import EVICTORS
from schemas.errors import BadPolicy
from schemas.policy import Policy, published
from schemas.records import (
    Ack,
    Capacity,
    Command,
    DeadLetter,
    FleetFacts,
    Inventory,
    Job,
    Lease,
    LedgerEntry,
    NodeSample,
    PolicyRecord,
    Reservation,
)
from streams.demo.trace import Arrival, Trace, Write

LINES = ("limit", "usage", "short", "long")


@dataclass(slots=True)
class Row:
    """One node; amounts in millicores, -1 or None where nothing is known yet."""

    node: str
    capacity_milli: int = 0
    reserved_milli: int = 0
    online_milli: int | None = None
    best_effort_milli: int | None = None
    allowed_milli: int = -1  # quota in force as the node read it back
    pressure_percent: int | None = None  # the worst of its online pods, of the last interval
    lines_milli: dict[str, int] = field(default_factory=dict)
    batch_milli: int | None = None
    mid_milli: int | None = None  # None too where policy lends no mid
    new_work: bool = True
    lent_milli: dict[str, int] = field(default_factory=dict)  # by scheduler
    said: str = ""  # the last command or act, in words
    acks: dict[str, int] = field(default_factory=dict)  # by outcome
    best_effort_us: int = 0  # CPU time of best-effort work since it was first seen
    samples: int = 0
    _last: NodeSample | None = None
    _online_pods: tuple[int, ...] = ()
    _pods_rev: int = -1

    @property
    def lent_in_all_milli(self) -> int:
        return sum(self.lent_milli.values())

    def fold(self, sample: NodeSample) -> None:
        """Rates of this interval from the pair of raw counters; a fallen counter gives no rate."""
        last, self._last = self._last, sample
        self.samples += 1
        quota = sample.node_columns.get("be_cpu_quota_milli")
        if quota is not None:
            self.allowed_milli = quota
        if last is None or last.boot != sample.boot or sample.mono_us <= last.mono_us:
            return
        span_us = sample.mono_us - last.mono_us
        used = _grown(last.node_columns, sample.node_columns, "be_cpu_usage_us")
        if used is not None:
            self.best_effort_us += used
            self.best_effort_milli = 1000 * used // span_us
        if sample.pods_rev == last.pods_rev == self._pods_rev:
            self._fold_pods(last, sample, span_us)

    def learn(self, inventory: Inventory) -> None:
        """Which columns of a sample belong to online pods."""
        self.capacity_milli = inventory.cpu_capacity_milli
        self.reserved_milli = inventory.cpu_reserved_milli
        self._pods_rev = inventory.pods_rev
        self._online_pods = tuple(
            slot for slot, pod in enumerate(inventory.pods) if pod.qos not in ("BE", "SYSTEM")
        )

    def _fold_pods(self, last: NodeSample, sample: NodeSample, span_us: int) -> None:
        usage = _pods_grown(last, sample, "cpu_usage_us", self._online_pods)
        if usage:
            self.online_milli = 1000 * sum(usage) // span_us
        pressure = _pods_grown(last, sample, "psi_cpu_some_us", self._online_pods)
        if pressure:
            self.pressure_percent = min(100 * max(pressure) // span_us, 100)


def _grown(last: dict[str, int | None], now: dict[str, int | None], name: str) -> int | None:
    before, after = last.get(name), now.get(name)
    return None if before is None or after is None or after < before else after - before


def _pods_grown(last: NodeSample, now: NodeSample, name: str, slots: tuple[int, ...]) -> list[int]:
    before, after = last.pod_columns.get(name), now.pod_columns.get(name)
    if before is None or after is None:
        return []
    grown = []
    for slot in slots:
        if slot < len(before) and slot < len(after):
            old, new = before[slot], after[slot]
            if old is not None and new is not None and new >= old:
                grown.append(new - old)
    return grown


@dataclass(slots=True)
class Board:
    """All nodes. Acks of the node called ``watched`` are kept whole, for `judge`."""

    watched: str = ""
    watched_acks: list[Ack] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    retries: int = 0
    commands: dict[str, int] = field(default_factory=dict)  # by decider
    leases: dict[int, int] = field(default_factory=dict)  # newest cause.log_ms by partition
    capacity_log_ms: int = 0  # newest cause.log_ms of any capacity record
    applied: dict[str, tuple[int, int]] = field(default_factory=dict)  # node: (order) applied
    evictions: int = 0
    dead_letters: list[DeadLetter] = field(default_factory=list)
    facts: FleetFacts | None = None
    policy: Policy = field(default_factory=Policy)  # the one named default, once read
    stage: str = ""  # of the rollout in that policy; "" before it was read
    undecodable: int = 0
    peak_lent_milli: int = 0

    def row(self, node: str) -> Row:
        return self.rows.setdefault(node, Row(node))

    def take(self, record: Any) -> None:
        """Fold one record of any topic; a type that the board does not show is ignored."""
        match record:
            case NodeSample():
                self.row(record.node).fold(record)
            case Inventory():
                self.row(record.node).learn(record)
            case Capacity():
                row = self.row(record.node)
                row.batch_milli, row.new_work = record.batch_cpu_milli, record.new_work
                lends_mid = record.mid_cpu_milli > 0 or record.mid_reason not in ("", "disabled")
                row.mid_milli = record.mid_cpu_milli if lends_mid else None
                self.capacity_log_ms = max(self.capacity_log_ms, record.cause.log_ms)
            case Reservation():
                self.row(record.node).lines_milli = record.cpu_milli
            case Command():
                self._command(record)
            case Lease():
                at = self.leases.get(record.cause.partition, 0)
                self.leases[record.cause.partition] = max(at, record.cause.log_ms)
            case Ack():
                self._ack(record)
            case LedgerEntry():
                self.row(record.node).lent_milli[record.scheduler] = record.cpu_milli
                self.peak_lent_milli = max(self.peak_lent_milli, self.lent_milli)
            case Job():
                self.jobs[record.job] = record
            case DeadLetter():
                self.dead_letters.append(record)
            case PolicyRecord():
                self._policy(record)
            case FleetFacts():
                self.facts = record
            case _:
                pass

    def _command(self, command: Command) -> None:
        self.commands[command.decider] = self.commands.get(command.decider, 0) + 1
        if command.decider == "suppress":
            self.row(command.node).said = f"{command.reason} {cores(command.allow_milli)}"
        else:
            self.row(command.node).said = f"{command.decider} {len(command.pods)} pods"

    def _policy(self, record: PolicyRecord) -> None:
        """As the deciders do: only the name ``default`` counts, and the last good one stays."""
        with suppress(BadPolicy):
            if record.name == "default":
                self.policy = published(record).policy
                self.stage = self.policy.rollout.stage

    def _ack(self, ack: Ack) -> None:
        row = self.row(ack.node)
        row.acks[ack.outcome] = row.acks.get(ack.outcome, 0) + 1
        if ack.node == self.watched:
            self.watched_acks.append(ack)
        if ack.outcome == "applied":
            self.applied[ack.node] = max(
                self.applied.get(ack.node, (0, -1)), (ack.incarnation, ack.offset)
            )
        if ack.decider in EVICTORS and ack.outcome in ("applied", "local"):
            self.evictions += len(ack.pods)
        if ack.outcome == "local":
            row.said = f"local law {cores(ack.in_force_milli)}"
        elif ack.outcome in ("refused", "failed"):
            row.said = f"{ack.outcome}: {ack.reason}"

    @property
    def batch_milli(self) -> int:
        """Batch capacity of all nodes."""
        return sum(row.batch_milli or 0 for row in self.rows.values())

    @property
    def mid_milli(self) -> int | None:
        """Mid capacity of all nodes; None where policy lends none."""
        said = [row.mid_milli for row in self.rows.values() if row.mid_milli is not None]
        return sum(said) if said else None

    @property
    def lent_milli(self) -> int:
        """What schedulers have lent, everywhere."""
        return sum(row.lent_in_all_milli for row in self.rows.values())

    def best_effort_us(self, nodes: set[str]) -> int:
        """CPU time that best-effort work has had on these nodes."""
        return sum(row.best_effort_us for name, row in self.rows.items() if name in nodes)

    def tell(self, trace: Trace) -> None:
        """Put what the watched node acked about its quota into ``trace``; afresh each time."""
        acks = [ack for ack in self.watched_acks if ack.decider == "suppress"]
        trace.writes = [
            Write(ack.mono_us, "local" if ack.outcome == "local" else "command", ack.in_force_milli)
            for ack in acks
            if ack.outcome in ("local", "applied")
        ]
        trace.arrivals = [Arrival(ack.mono_us, ack.asked_milli) for ack in acks if ack.command_id]

    def jobs_in(self, state: str) -> int:
        return sum(job.state == state for job in self.jobs.values())


def cores(milli: int | None) -> str:
    """Millicores as cores for people: ``1.30``; ``-`` when unknown, ``all`` for no quota."""
    if milli is None:
        return "-"
    return "all" if milli < 0 else f"{milli / 1000:.2f}" if milli < 100_000 else f"{milli // 1000}"
