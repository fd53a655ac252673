"""What a node's `Reservation` record says of its load, as the laws of load take it.

Called by the scheduler bridge whenever such a record arrives. Usage stands for the whole machine:
its pods and the system beside them, of the last second, but never less than the median of the last
five minutes, so that one calm second draws no work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.table import ABSENT
from agents.windows import SECOND_MS, SECONDS
from schemas.records import Reservation

Pair = tuple[int, int]
"""CPU in millicores and memory in bytes; ABSENT is not known."""
NOTHING_KNOWN: Pair = (ABSENT, ABSENT)
KINDS = ("p50", "p90", "p95", "p99")
WINDOW_MS = SECONDS * SECOND_MS
"""Percentiles of the whole node, as records name them, over this window."""


@dataclass(frozen=True, slots=True)
class Report:
    """Usage of a node and of its pods by uid, at log time ``at_ms``; ``ranks`` follow `KINDS`."""

    at_ms: int
    usage: Pair
    ranks: tuple[Pair, ...]
    pods: Mapping[str, Pair]


def report_of(record: Reservation) -> Report:
    """The report of one record; pods whose usage is not known are left out."""
    cpu = record.pod_cpu_milli.get("usage", [])
    memory = record.pod_memory_bytes.get("usage", [])
    pods = {
        uid: pair
        for uid, *pair in zip(record.pods, cpu, memory, strict=False)
        if max(pair) >= 0
    }  # fmt: skip
    ranks = tuple(
        (
            record.cpu_percentiles_milli.get(kind, ABSENT),
            record.memory_percentiles_bytes.get(kind, ABSENT),
        )
        for kind in KINDS
    )
    blind = bool(record.pods) and not pods
    used = (
        NOTHING_KNOWN
        if blind
        else (
            record.system_cpu_milli + sum(max(milli, 0) for milli, _ in pods.values()),
            record.system_memory_bytes + sum(max(size, 0) for _, size in pods.values()),
        )
    )
    usage = (max(used[0], ranks[0][0]), max(used[1], ranks[0][1]))
    return Report(record.cause.log_ms, usage, ranks, {uid: (a, b) for uid, (a, b) in pods.items()})
