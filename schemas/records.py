"""The records that travel on the topics, frozen, in the units their names say.

Written and read through `schemas.codec`. Unknown fields are ignored on reading and missing ones
take the default given here, so that a neighbour one version older or newer still understands.
Times: ``*_mono_us`` is a node's monotonic clock; ``*_log_ms`` is broker append time made monotone
per partition of ``samples``; ``wall_ms`` is shown to people and never decides anything.
"""

# ruff: noqa: PLC0414 - an alias of its own name is what makes a name of another module ours
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from schemas.eviction_report import EvictionOutcome as EvictionOutcome
from schemas.eviction_report import EvictionReport as EvictionReport
from schemas.eviction_report import EvictionSource as EvictionSource
from schemas.facts import BurstWish as BurstWish
from schemas.facts import CpuTopology as CpuTopology
from schemas.facts import Int64 as Int64
from schemas.facts import Inventory as Inventory
from schemas.facts import PodFact as PodFact
from schemas.facts import PriorityClass as PriorityClass
from schemas.facts import Qos as Qos
from schemas.facts import ResctrlFacts as ResctrlFacts
from schemas.facts import Zone as Zone
from schemas.isolation import IsolationSettings as IsolationSettings

Decider = Literal[
    "suppress", "evict_memory", "evict_cpu", "isolate", "capacity", "reservation",
    "interference", "health", "slo_guard",
]  # fmt: skip


Outcome = Literal[
    "applied", "refused", "local", "failed", "duplicate", "started", "handed_over",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One node, one period: raw counters and levels (`schemas.columns`), never rates.

    A pod column has one entry a pod, in the order of the pod set whose revision is ``pods_rev``
    (`Inventory`). ``None``: that one value was absent; a missing column: not measured this time.
    """

    node: str
    boot: str  # 32 hex digits, one start of the agent
    kernel_boot: str  # 32 hex digits, one start of the kernel
    seq: Int64  # from 1, +1 a sample, per boot
    mono_us: Int64
    wall_ms: Int64
    period_ms: Int64
    pods_rev: Int64
    pods: Int64  # how many pods the set has
    node_columns: dict[str, Int64 | None] = field(default_factory=dict)
    pod_columns: dict[str, list[Int64 | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time as data, written into each partition of ``samples`` by its owner once a period.

    ``side``: for each side topic and partition ("inventory/3") the offset up to which, inclusive,
    its records are admitted when this tick is folded.
    """

    partition: Int64
    incarnation: Int64
    law_version: Int64
    side: dict[str, Int64]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a record exists: the record of ``samples`` that was folded, and under which law."""

    incarnation: Int64
    partition: Int64
    offset: Int64
    log_ms: Int64
    policy: str  # digest
    law_version: Int64


@dataclass(frozen=True, slots=True)
class Command:
    """Desired state of one knob of one node; order is (incarnation, offset) of its cause.

    ``suppress``: best-effort work may use ``allow_milli`` of CPU; with ``cpus`` it runs on these,
    and a node that can bind it to them sets no quota. ``evict_memory``: the pods in ``pods`` are
    to go, to free ``release_bytes``; ``evict_cpu``: they go for requested CPU, see ``terms``.
    ``isolate``: the groups of the node get ``settings``. Valid until ``expires_log_ms`` unless
    renewed by a `Lease` of its partition; an eviction is never renewed.
    """

    id: str
    node: str
    decider: Decider
    cause: Cause
    expires_log_ms: Int64
    reason: str
    allow_milli: Int64 = -1
    pods: tuple[str, ...] = ()
    release_bytes: Int64 = 0
    dry_run: bool = False
    terms: dict[str, Int64] = field(default_factory=dict)
    cpus: tuple[Int64, ...] = ()
    settings: IsolationSettings | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Renews every standing command of one partition; key `LEASE_KEY`, once a tick."""

    cause: Cause
    expires_log_ms: Int64


@dataclass(frozen=True, slots=True)
class Ack:
    """What a node did: with a command, or by itself (``outcome`` local), and what it read back.

    An eviction that leaves a pod time to end is acked twice: ``started``, or ``handed_over`` where
    the bridge is to ask the Eviction API for ``pods``, and what became of it.
    """

    node: str
    boot: str
    seq: Int64
    mono_us: Int64
    decider: Decider
    outcome: Outcome
    command_id: str = ""
    incarnation: Int64 = 0
    offset: Int64 = -1
    asked_milli: Int64 = -1
    in_force_milli: Int64 = -1
    pods: tuple[str, ...] = ()
    reason: str = ""
    dry_run: bool = False
    terms: dict[str, Int64] = field(default_factory=dict)  # of an act of its own


@dataclass(frozen=True, slots=True)
class Capacity:
    """What may be borrowed on one node, with the terms of the sums; absolute values.

    Mid and batch draw on the same machine: what mid work uses is part of batch's ``need``. The
    zones are those of `Inventory`, in its order; batch only.
    """

    node: str
    cause: Cause
    batch_cpu_milli: Int64
    batch_memory_bytes: Int64
    reason: str
    new_work: bool = True  # False: place nothing new, keep what runs
    computed_cpu_milli: Int64 = 0  # before guards; may be negative
    computed_memory_bytes: Int64 = 0
    cpu_terms: dict[str, Int64] = field(default_factory=dict)
    memory_terms: dict[str, Int64] = field(default_factory=dict)
    mid_cpu_milli: Int64 = 0
    mid_memory_bytes: Int64 = 0
    mid_reason: str = ""
    computed_mid_cpu_milli: Int64 = 0
    computed_mid_memory_bytes: Int64 = 0
    mid_cpu_terms: dict[str, Int64] = field(default_factory=dict)
    mid_memory_terms: dict[str, Int64] = field(default_factory=dict)
    zone_cpu_milli: list[Int64] = field(default_factory=list)
    zone_memory_bytes: list[Int64] = field(default_factory=list)
    workloads: tuple[str, ...] = ()  # only these may borrow; none named: any


@dataclass(frozen=True, slots=True)
class Reservation:
    """The four lines of one node and of its pods, with usage percentiles and system usage.

    Keys of a lines dict: ``limit``, ``usage``, ``short``, ``long``; pod columns are in the order
    of ``pods`` (uid). ``warm_ms``: how much history stands behind them.
    """

    node: str
    cause: Cause
    warm_ms: Int64
    cpu_milli: dict[str, Int64]
    memory_bytes: dict[str, Int64]
    cpu_percentiles_milli: dict[str, Int64] = field(default_factory=dict)
    memory_percentiles_bytes: dict[str, Int64] = field(default_factory=dict)
    system_cpu_milli: Int64 = 0
    system_memory_bytes: Int64 = 0
    reclaimable_cpu_milli: Int64 = 0
    reclaimable_memory_bytes: Int64 = 0
    peak_cpu_milli: Int64 = -1  # what stays with prod pods; -1: nothing is predicted
    peak_memory_bytes: Int64 = -1
    pods: tuple[str, ...] = ()
    pod_cpu_milli: dict[str, list[Int64]] = field(default_factory=dict)
    pod_memory_bytes: dict[str, list[Int64]] = field(default_factory=dict)
    pods_against_rules: dict[str, list[str]] = field(default_factory=dict)  # rule -> uids


@dataclass(frozen=True, slots=True)
class Signal:
    """Interference as each online pod feels it, against its own last hour; columns by ``pods``.

    ``score_permille``: robust z-score x 1000; null while history is shorter than the policy asks.
    """

    node: str
    cause: Cause
    ill: bool
    pods: tuple[str, ...] = ()
    pressure_us_per_s: list[Int64 | None] = field(default_factory=list)
    pressure_median: list[Int64 | None] = field(default_factory=list)
    pressure_score_permille: list[Int64 | None] = field(default_factory=list)
    wait_us_per_s: list[Int64 | None] = field(default_factory=list)
    wait_median: list[Int64 | None] = field(default_factory=list)
    wait_score_permille: list[Int64 | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the audit log. A tick's decisions travel as columns in one record.

    For a decision of a single node ``nodes`` has one entry. Every column is as long as ``nodes``.
    """

    decider: Decider
    cause: Cause
    nodes: tuple[str, ...]
    outcome: tuple[str, ...]  # reason codes
    columns: dict[str, list[Int64]] = field(default_factory=dict)
    command_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """What one partition knows of its nodes at a tick; key ``partition/N`` of ``fleet``."""

    cause: Cause
    nodes: Int64
    silent: Int64
    ill: Int64
    evictions_wanted: Int64
    pods_against_rules: Int64 = 0  # whose QoS, class and request do not go together


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What no partition knows alone; key ``fleet``. Absent or stale means: no evictions.

    ``revision`` is the offset in ``fleet`` of the newest record that was counted, so it grows
    whoever computes it. A fleet's budget may be smaller than its partitions are many: then
    ``budgets`` says who may spend it now, one number a partition; empty: each has
    ``evictions_per_partition``.
    """

    revision: Int64
    partitions_seen: Int64
    nodes: Int64
    silent: Int64
    ill: Int64
    ill_permille: Int64
    evictions_per_partition: Int64  # budget of one partition for one cool-down
    stale_after_ms: Int64
    reason: str = ""
    budgets: tuple[Int64, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeMinute:
    """One row of the public windowed table: one node, one minute of log time.

    Counts are of records, each counted once; maxima and last values are null where no record
    said them. ``seen``: for each source topic the newest (incarnation, offset) that was counted.
    """

    node: str
    start_ms: Int64
    reservations: Int64 = 0
    cpu_usage_max_milli: Int64 | None = None
    cpu_short_max_milli: Int64 | None = None
    cpu_long_max_milli: Int64 | None = None
    memory_usage_max_bytes: Int64 | None = None
    memory_short_max_bytes: Int64 | None = None
    memory_long_max_bytes: Int64 | None = None
    signals: Int64 = 0
    ill_signals: Int64 = 0
    score_max_permille: Int64 | None = None
    capacities: Int64 = 0
    batch_cpu_milli: Int64 | None = None
    batch_memory_bytes: Int64 | None = None
    new_work: bool | None = None
    mid_cpu_milli: Int64 | None = None
    mid_memory_bytes: Int64 | None = None
    seen: dict[str, tuple[Int64, Int64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Installation:
    """Key ``installation`` of ``fleet``: fixed when the topics are created."""

    incarnation: Int64
    partitions: Int64


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What one scheduler has lent on one node, in all; absolute, the newest holds.

    ``cpu_milli`` and ``memory_bytes`` are batch's, ``mid_*`` are mid's and not part of them.
    """

    node: str
    scheduler: str
    cpu_milli: Int64
    memory_bytes: Int64
    releasing_cpu_milli: Int64 = 0
    releasing_memory_bytes: Int64 = 0
    pods: tuple[str, ...] = ()
    mid_cpu_milli: Int64 = 0
    mid_memory_bytes: Int64 = 0


@dataclass(frozen=True, slots=True)
class Sli:
    """What an online service measures of its pods on one node over ``window_ms``.

    ``end_ms``: wall time at which the window ends, by the service's clock. Two records of one end
    are one measurement; what says none (-1) is as old as its record. `schemas.slis` says what can
    be believed. ``p50_us`` 0, ``p90_us`` and ``p999_us`` -1: not measured.
    """

    workload: str  # as inventory names it
    node: str
    window_ms: Int64
    p50_us: Int64
    p99_us: Int64
    requests: Int64
    errors: Int64 = 0
    end_ms: Int64 = -1
    p90_us: Int64 = -1
    p999_us: Int64 = -1


@dataclass(frozen=True, slots=True)
class Job:
    """What one piece of batch work achieves."""

    job: str
    node: str
    state: Literal["queued", "running", "suppressed", "evicted", "done"]
    progress_permille: Int64
    cpu_us: Int64 = 0
    retries: Int64 = 0
    recoverable: bool = True


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """One version of the policy as published: its text is authoritative, its digest names it.

    With a ``canary`` (labels, all of which a node must carry) the text holds on those nodes only,
    and ``elsewhere`` on all others, until a record without a canary follows. ``forced``: a
    refusal was overruled by ``author``, ``note`` says why.
    """

    name: str
    version: Int64
    digest: str
    text: str
    author: str = ""
    note: str = ""
    canary: dict[str, str] = field(default_factory=dict)
    elsewhere: str = ""
    forced: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be used: where it was, why, and its first bytes (hex)."""

    topic: str
    partition: Int64
    offset: Int64
    reason: str
    detail: str
    key_hex: str = ""
    head_hex: str = ""
    size_bytes: Int64 = 0


LEASE_KEY = b"~lease"
FLEET_KEY = b"fleet"
INSTALLATION_KEY = b"installation"
