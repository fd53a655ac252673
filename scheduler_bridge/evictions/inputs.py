"""What the topics say, folded into the queue; what cannot be read becomes a dead letter.

Called by the loop for every record. With keys, a command counts only if a worker signed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler_bridge.evictions.budget import Budget
from scheduler_bridge.evictions.flights import Flights
from scheduler_bridge.evictions.queue import EVICTORS, Queue
from schemas import codec
from schemas.errors import BadRecord
from schemas.records import LEASE_KEY, Ack, Command, EvictionReport

TOPICS = ("commands", "acks", "evictions")
OURS = tuple(f'"{name}"'.encode() for name in EVICTORS)
Check = Callable[[str, bytes | None, Any, bytes | None], None]


def unchecked(*_: object) -> None:
    """Without keys everybody is believed."""


def fold(
    topic: str, record: Any, queue: Queue, budget: Budget, flights: Flights, check: Check
) -> str:
    """Take one record of `TOPICS`; says what it was. Raises BadRecord."""
    raw: bytes | None = record.value
    if topic == "commands":
        # Most commands are no evictions: those are not decoded, nor is their signature checked.
        if raw is None or record.key == LEASE_KEY or not any(word in raw for word in OURS):
            return "other"
        check(topic, record.key, record.headers, raw)
    elif raw is None:
        return "other"
    codec.encoding_of(record.headers)
    if topic == "commands":
        command = codec.decode(Command, raw)
        _same_node(command.node, record.key)
        queue.fold_command(command, record.timestamp)
    elif topic == "acks":
        if not any(word in raw for word in OURS):
            return "other"
        ack = codec.decode(Ack, raw)
        _same_node(ack.node, record.key)
        queue.fold_ack(ack, record.timestamp)
    else:
        report = codec.decode(EvictionReport, raw)
        _same_node(report.node, record.key)
        queue.fold_report(report, record.timestamp)
        flights.note(report, record.timestamp)
        if report.outcome == "evicted" and not report.dry_run:
            budget.learn(record.timestamp, report.node, report.namespace, report.pod)
    return "read"


def _same_node(node: str, key: bytes | None) -> None:
    if key is None or node.encode() != key:
        raise BadRecord("key_mismatch", f"key {key!r:.80}, node {node[:64]!r}")
