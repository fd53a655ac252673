"""The topic table: the only list of topics.

Topic creation, the AsyncAPI document, the JSON Schemas and the Kafka ACLs are made from it; the
shells take names, partitions and keys from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from schemas import ledger_records, records

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PREFIX = "slackwater."
PARTITIONS = 24
MAX_MESSAGE_BYTES = 1024 * 1024 + 64 * 1024  # `codec.MAX_RECORD_BYTES`, and room for the batch
Component = Literal[
    "node", "worker", "fleet", "bridge", "scheduler", "service", "operator", "recorder", "any"
]

READ_ALL: tuple[Component, ...] = ("recorder",)
"""They read every topic, so no row names them."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One row. ``partitioned``: as many partitions as ``samples``, else one.

    ``append_time``: the broker stamps records (the log's clock). ``compacted`` topics keep at
    least ``retention_ms`` uncompacted, so that a refold within that time sees what was admitted.
    ``expiring``: compacted, and records older than ``retention_ms`` go too (nothing is refolded
    from it). ``side``: read by workers without a group and admitted by ticks. ``segment_ms`` rolls
    the log, since the newest segment is neither compacted nor deleted.
    """

    name: str
    key: str
    records: tuple[type[Any], ...]
    writers: tuple[Component, ...]
    readers: tuple[Component, ...]
    retention_ms: int
    doc: str
    compacted: bool = False
    partitioned: bool = True
    append_time: bool = True
    side: bool = False
    expiring: bool = False
    segment_ms: int = HOUR_MS


TOPICS: tuple[Topic, ...] = (
    Topic(
        "samples",
        "node; ticks: none",
        (records.NodeSample, records.Tick),
        ("node", "worker"),
        ("worker",),
        6 * HOUR_MS,
        "One record a node a period: raw counters; and the ticks.",
    ),
    Topic(
        "inventory",
        "node",
        (records.Inventory,),
        ("node",),
        ("worker", "bridge"),
        6 * HOUR_MS,
        "Node facts and pod facts; each pod set has a revision.",
        compacted=True,
        side=True,
    ),
    Topic(
        "policies",
        "policy name",
        (records.PolicyRecord,),
        ("operator",),
        ("worker", "node", "fleet", "bridge", "operator"),
        365 * DAY_MS,
        "Versioned policy; the history of a year.",
        compacted=True,
        partitioned=False,
        side=True,
    ),
    Topic(
        "commands",
        "node; leases: ~lease",
        (records.Command, records.Lease),
        ("worker",),
        ("node", "bridge"),
        6 * HOUR_MS,
        "Desired state for a node, with order, expiry and cause.",
    ),
    Topic(
        "acks",
        "node",
        (records.Ack,),
        ("node",),
        ("worker", "bridge"),
        6 * HOUR_MS,
        "What was applied, refused and why; what a node did by itself, or hands to the bridge.",
        side=True,
    ),
    Topic(
        "evictions",
        "node",
        (records.EvictionReport,),
        ("bridge",),
        ("bridge", "any"),
        7 * DAY_MS,
        "What became of each pod that was to go through the Eviction API.",
    ),
    Topic(
        "capacity",
        "node",
        (records.Capacity,),
        ("worker",),
        ("bridge", "scheduler", "fleet"),
        6 * HOUR_MS,
        "What batch work may borrow on a node, with the terms of the sum.",
        compacted=True,
    ),
    Topic(
        "reservations",
        "node",
        (records.Reservation,),
        ("worker",),
        ("any", "fleet", "bridge"),
        6 * HOUR_MS,
        "The four lines of each node and pod, percentiles, system usage, reclaimable.",
    ),
    Topic(
        "signals",
        "node",
        (records.Signal,),
        ("worker",),
        ("any", "fleet", "bridge"),
        6 * HOUR_MS,
        "Interference as each online pod feels it, against its own history.",
    ),
    Topic(
        "fleet",
        "fleet, installation or partition/N",
        (records.FleetFacts, records.Installation, records.PartitionHealth),
        ("fleet", "worker", "operator"),
        ("worker", "fleet", "bridge", "operator"),
        6 * HOUR_MS,
        "What no single partition knows: ill nodes, eviction budget.",
        compacted=True,
        partitioned=False,
        side=True,
    ),
    Topic(
        "ledger",
        "node/scheduler; claims: node/scheduler/claim and /answer; ~reign",
        (
            records.LedgerEntry,
            ledger_records.LedgerClaim,
            ledger_records.LedgerGrant,
            ledger_records.LedgerReign,
        ),
        ("scheduler", "bridge"),
        ("worker", "bridge", "scheduler"),
        6 * HOUR_MS,
        "What is lent to whom, claims and answers; in the partition of the node.",
        compacted=True,
        side=True,
    ),
    Topic(
        "slis",
        "node",
        (records.Sli,),
        ("service",),
        ("worker", "any"),
        DAY_MS,
        "What online services measure of themselves, node by node.",
        side=True,
    ),
    Topic(
        "jobs",
        "job",
        (records.Job,),
        ("scheduler",),
        ("any",),
        DAY_MS,
        "What batch work achieves.",
    ),
    Topic(
        "decisions",
        "node; decisions of a tick: none",
        (records.Decision,),
        ("worker",),
        ("any",),
        7 * DAY_MS,
        "The audit log.",
    ),
    Topic(
        "dead-letters",
        "topic",
        (records.DeadLetter,),
        ("worker", "bridge", "fleet"),
        ("operator",),
        7 * DAY_MS,
        "What could not be read, with the reason.",
        partitioned=False,
    ),
    Topic(
        "images",
        "cut/chunk",
        (),
        ("worker",),
        ("worker",),
        HOUR_MS,
        "The workers' own state: full images of a partition, in chunks.",
        segment_ms=HOUR_MS // 6,
    ),
    Topic(
        "fleet-minutes-changelog",
        "node and window, as Faust writes it: [node, [start, end]]",
        (records.NodeMinute,),
        ("fleet",),
        ("fleet", "any"),
        2 * HOUR_MS,
        "The public windowed table: per node and minute, reservations, signals, capacity.",
        compacted=True,
        expiring=True,
        segment_ms=HOUR_MS // 6,
    ),
)

MINUTES = "fleet-minutes-changelog"
BY_NAME: dict[str, Topic] = {topic.name: topic for topic in TOPICS}
SIDE_TOPICS: tuple[str, ...] = tuple(topic.name for topic in TOPICS if topic.side)


def partitions_of(topic: Topic, partitions: int) -> int:
    """How many partitions a topic has where ``samples`` has ``partitions``."""
    return partitions if topic.partitioned else 1


def configs_of(topic: Topic, replication: int) -> dict[str, str]:
    """The broker's settings for a topic, by Kafka's names; all that the table implies."""
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": str(topic.retention_ms),
        "segment.ms": str(topic.segment_ms),
        "message.timestamp.type": "LogAppendTime" if topic.append_time else "CreateTime",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "min.insync.replicas": str(min(2, replication)),
    }
    if topic.compacted:
        configs["cleanup.policy"] = "compact,delete" if topic.expiring else "compact"
        configs["min.cleanable.dirty.ratio"] = "0.1"
        if not topic.expiring:
            del configs["retention.ms"]
            configs["min.compaction.lag.ms"] = str(topic.retention_ms)
    return configs


def full_name(prefix: str, topic: str) -> str:
    """The name on the broker; a KeyError here is a programming error."""
    return prefix + BY_NAME[topic].name
