"""The records that travel on the topics, frozen, in the units their names say.

Written and read through `schemas.codec`. Unknown fields are ignored on reading and missing ones
take the default given here, so that a neighbour one version older or newer still understands.
Times: ``*_mono_us`` is a node's monotonic clock; ``*_log_ms`` is broker append time made monotone
per partition of ``samples``; ``wall_ms`` is shown to people and never decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Qos = Literal["LSE", "LSR", "LS", "BE", "SYSTEM", ""]
PriorityClass = Literal["prod", "mid", "batch", "free", ""]
Decider = Literal["suppress", "evict_memory", "capacity", "reservation", "interference", "health"]


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One node, one period: raw counters and levels (`schemas.columns`), never rates.

    A pod column has one entry a pod, in the order of the pod set whose revision is ``pods_rev``
    (`Inventory`). ``None``: that one value was absent; a missing column: not measured this time.
    """

    node: str
    boot: str  # 32 hex digits, one start of the agent
    kernel_boot: str  # 32 hex digits, one start of the kernel
    seq: int  # from 1, +1 a sample, per boot
    mono_us: int
    wall_ms: int
    period_ms: int
    pods_rev: int
    pods: int  # how many pods the set has
    node_columns: dict[str, int | None] = field(default_factory=dict)
    pod_columns: dict[str, list[int | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time as data, written into each partition of ``samples`` by its owner once a period.

    ``side``: for each side topic and partition ("inventory/3") the offset up to which, inclusive,
    its records are admitted when this tick is folded.
    """

    partition: int
    incarnation: int
    law_version: int
    side: dict[str, int]


@dataclass(frozen=True, slots=True)
class PodFact:
    """What is known of one pod or host application; amounts of its own priority class."""

    uid: str
    name: str
    namespace: str = ""
    workload: str = ""
    qos: Qos = ""  # effective class: never "" after `agents.classes`
    priority_class: PriorityClass = ""
    priority: int = 0
    cpu_request_milli: int = 0
    cpu_limit_milli: int = -1
    memory_request_bytes: int = 0
    memory_limit_bytes: int = -1
    host_app: bool = False
    evictable: bool = True  # an opt-out, honoured by every eviction
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """Node facts and pod facts; the order of ``pods`` is the order of the sample's columns."""

    node: str
    pods_rev: int
    cpu_capacity_milli: int
    memory_capacity_bytes: int
    cpu_allocatable_milli: int = -1  # -1: same as capacity
    memory_allocatable_bytes: int = -1
    cpu_reserved_milli: int = 0
    memory_reserved_bytes: int = 0
    kernel: str = ""
    capabilities: dict[str, bool] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    pods: tuple[PodFact, ...] = ()
    removed: bool = False  # tombstone: the node has left


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a record exists: the record of ``samples`` that was folded, and under which law."""

    incarnation: int
    partition: int
    offset: int
    log_ms: int
    policy: str  # digest
    law_version: int


@dataclass(frozen=True, slots=True)
class Command:
    """Desired state of one knob of one node; order is (incarnation, offset) of its cause.

    ``suppress``: best-effort work may use ``allow_milli`` of CPU. ``evict_memory``: the pods in
    ``pods`` are to go, to free ``release_bytes``. Valid until ``expires_log_ms`` unless renewed
    by a `Lease` of its partition; the memory gate is never renewed.
    """

    id: str
    node: str
    decider: Decider
    cause: Cause
    expires_log_ms: int
    reason: str
    allow_milli: int = -1
    pods: tuple[str, ...] = ()
    release_bytes: int = 0
    dry_run: bool = False
    terms: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lease:
    """Renews every standing command of one partition; key `LEASE_KEY`, once a tick."""

    cause: Cause
    expires_log_ms: int


@dataclass(frozen=True, slots=True)
class Ack:
    """What a node did: with a command, or by itself (``outcome`` local), and what it read back."""

    node: str
    boot: str
    seq: int
    mono_us: int
    decider: Decider
    outcome: Literal["applied", "refused", "local", "failed", "duplicate"]
    command_id: str = ""
    incarnation: int = 0
    offset: int = -1
    asked_milli: int = -1
    in_force_milli: int = -1
    pods: tuple[str, ...] = ()
    reason: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Capacity:
    """What batch work may borrow on one node, with the terms of the sum; absolute values."""

    node: str
    cause: Cause
    batch_cpu_milli: int
    batch_memory_bytes: int
    reason: str
    new_work: bool = True  # False: place nothing new, keep what runs
    computed_cpu_milli: int = 0  # before guards; may be negative
    computed_memory_bytes: int = 0
    cpu_terms: dict[str, int] = field(default_factory=dict)
    memory_terms: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reservation:
    """The four lines of one node and of its pods, with usage percentiles and system usage.

    Keys of a lines dict: ``limit``, ``usage``, ``short``, ``long``; pod columns are in the order
    of ``pods`` (uid). ``warm_ms``: how much history stands behind them.
    """

    node: str
    cause: Cause
    warm_ms: int
    cpu_milli: dict[str, int]
    memory_bytes: dict[str, int]
    cpu_percentiles_milli: dict[str, int] = field(default_factory=dict)
    memory_percentiles_bytes: dict[str, int] = field(default_factory=dict)
    system_cpu_milli: int = 0
    system_memory_bytes: int = 0
    reclaimable_cpu_milli: int = 0
    reclaimable_memory_bytes: int = 0
    pods: tuple[str, ...] = ()
    pod_cpu_milli: dict[str, list[int]] = field(default_factory=dict)
    pod_memory_bytes: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Signal:
    """Interference as each online pod feels it, against its own last hour; columns by ``pods``.

    ``score_permille``: robust z-score x 1000; null while history is shorter than the policy asks.
    """

    node: str
    cause: Cause
    ill: bool
    pods: tuple[str, ...] = ()
    pressure_us_per_s: list[int | None] = field(default_factory=list)
    pressure_median: list[int | None] = field(default_factory=list)
    pressure_score_permille: list[int | None] = field(default_factory=list)
    wait_us_per_s: list[int | None] = field(default_factory=list)
    wait_median: list[int | None] = field(default_factory=list)
    wait_score_permille: list[int | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the audit log. A tick's decisions travel as columns in one record.

    For a decision of a single node ``nodes`` has one entry. Every column is as long as ``nodes``.
    """

    decider: Decider
    cause: Cause
    nodes: tuple[str, ...]
    outcome: tuple[str, ...]  # reason codes
    columns: dict[str, list[int]] = field(default_factory=dict)
    command_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """What one partition knows of its nodes at a tick; key ``partition/N`` of ``fleet``."""

    cause: Cause
    nodes: int
    silent: int
    ill: int
    evictions_wanted: int


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What no partition knows alone; key ``fleet``. Absent or stale means: no evictions."""

    revision: int
    partitions_seen: int
    nodes: int
    silent: int
    ill: int
    ill_permille: int
    evictions_per_partition: int  # budget of one partition for one cool-down
    stale_after_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """Key ``installation`` of ``fleet``: fixed when the topics are created."""

    incarnation: int
    partitions: int


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What one scheduler has lent on one node, in all; absolute, the newest holds."""

    node: str
    scheduler: str
    cpu_milli: int
    memory_bytes: int
    releasing_cpu_milli: int = 0
    releasing_memory_bytes: int = 0
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sli:
    """What an online service measures of itself over ``window_ms``."""

    workload: str
    node: str
    window_ms: int
    p50_us: int
    p99_us: int
    requests: int
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """What one piece of batch work achieves."""

    job: str
    node: str
    state: Literal["queued", "running", "suppressed", "evicted", "done"]
    progress_permille: int
    cpu_us: int = 0
    retries: int = 0
    recoverable: bool = True


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """One version of the policy as published: its text is authoritative, its digest names it."""

    name: str
    version: int
    digest: str
    text: str
    author: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be used: where it was, why, and its first bytes (hex)."""

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    key_hex: str = ""
    head_hex: str = ""
    size_bytes: int = 0


LEASE_KEY = b"~lease"
FLEET_KEY = b"fleet"
INSTALLATION_KEY = b"installation"
