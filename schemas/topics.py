"""The topic table: the only list of topics.

Topic creation, the AsyncAPI document, the JSON Schemas and the Kafka ACLs are made from it; the
shells take names, partitions and keys from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from schemas import records

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PREFIX = "slackwater."
PARTITIONS = 24
Component = Literal["node", "worker", "fleet", "bridge", "scheduler", "service", "operator", "any"]


@dataclass(frozen=True, slots=True)
class Topic:
    """One row. ``partitioned``: as many partitions as ``samples``, else one.

    ``append_time``: the broker stamps records (the log's clock). ``compacted`` topics keep at
    least ``retention_ms`` uncompacted, so that a refold within that time sees what was admitted.
    ``side``: read by workers without a group and admitted by ticks (DESIGN: side inputs).
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
        ("worker", "node"),
        6 * HOUR_MS,
        "Versioned policy.",
        compacted=True,
        partitioned=False,
        side=True,
    ),
    Topic(
        "commands",
        "node; leases: ~lease",
        (records.Command, records.Lease),
        ("worker",),
        ("node",),
        6 * HOUR_MS,
        "Desired state for a node, with order, expiry and cause.",
    ),
    Topic(
        "acks",
        "node",
        (records.Ack,),
        ("node",),
        ("worker",),
        6 * HOUR_MS,
        "What was applied, read back, refused and why; what a node did by itself.",
        side=True,
    ),
    Topic(
        "capacity",
        "node",
        (records.Capacity,),
        ("worker",),
        ("bridge", "scheduler"),
        6 * HOUR_MS,
        "What batch work may borrow on a node, with the terms of the sum.",
        compacted=True,
    ),
    Topic(
        "reservations",
        "node",
        (records.Reservation,),
        ("worker",),
        ("any",),
        6 * HOUR_MS,
        "The four lines of each node and pod, percentiles, system usage, reclaimable.",
    ),
    Topic(
        "signals",
        "node",
        (records.Signal,),
        ("worker",),
        ("any",),
        6 * HOUR_MS,
        "Interference as each online pod feels it, against its own history.",
    ),
    Topic(
        "fleet",
        "fleet, installation or partition/N",
        (records.FleetFacts, records.Installation, records.PartitionHealth),
        ("fleet", "worker", "operator"),
        ("worker", "fleet"),
        6 * HOUR_MS,
        "What no single partition knows: ill nodes, eviction budget.",
        compacted=True,
        partitioned=False,
        side=True,
    ),
    Topic(
        "ledger",
        "node",
        (records.LedgerEntry,),
        ("scheduler", "bridge"),
        ("worker",),
        6 * HOUR_MS,
        "What schedulers have lent, by whom.",
        compacted=True,
        side=True,
    ),
    Topic(
        "slis",
        "node",
        (records.Sli,),
        ("service",),
        ("any",),
        DAY_MS,
        "What online services measure of themselves.",
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
        ("worker", "bridge"),
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
    ),
)

BY_NAME: dict[str, Topic] = {topic.name: topic for topic in TOPICS}
SIDE_TOPICS: tuple[str, ...] = tuple(topic.name for topic in TOPICS if topic.side)


def full_name(prefix: str, topic: str) -> str:
    """The name on the broker; a KeyError here is a programming error."""
    return prefix + BY_NAME[topic].name
