"""Invariants of what workers publish, whoever they are: bytes, capacity, eviction orders.

`said` is called for every record that the fake log took.
"""

from __future__ import annotations

import hashlib
from collections import deque

from agents.eviction.gate import ALONE
from agents.log import Output
from schemas.records import Capacity, Command, DeadLetter
from tests.sim.broker import Broker
from tests.sim.findings import Report

DOUBT = ("cold", "silent", "unknown_pods", "withdrawn")
SPAN_MS = 20_000
STALE_MS = 4_000  # a tick after the silence that the policies of `plan` forgive
ORDERS_PER_SPAN = 10  # five cool-downs, and two holders of one share while facts are on their way
Key = tuple[int, int, str, str, str, bytes]


def _amounts(record: Capacity) -> tuple[int, ...]:
    return (
        record.batch_cpu_milli, record.batch_memory_bytes, record.mid_cpu_milli,
        record.mid_memory_bytes,
    )  # fmt: skip


def _terms(record: Capacity, name: str) -> tuple[int, ...]:
    every = (record.cpu_terms, record.memory_terms, record.mid_cpu_terms, record.mid_memory_terms)
    return tuple(terms[name] for terms in every)


class OutputCheck:
    """All outputs by key. The key of a dead letter also names the topic of the bad record."""

    def __init__(self, report: Report, broker: Broker, start_ms: int) -> None:
        self.report, self._broker, self._start_ms = report, broker, start_ms
        self.bytes: dict[Key, bytes] = {}
        self.letters: dict[tuple[str, int, int], str] = {}
        self.capacity: dict[str, Capacity] = {}
        self.fleet_budget = 1
        self.ill_since_ms: int | None = None  # facts say that most nodes are ill
        self._orders: deque[tuple[int, int]] = deque()

    def said(self, worker: str, partition: int, output: Output, value: bytes) -> None:
        key = (
            partition, output.offset, output.node, output.decider, output.topic, output.key or b"",
        )  # fmt: skip
        before = self.bytes.setdefault(key, value)
        self.report.figures[f"said_{output.topic}"] += 1
        if before != value:
            detail = f"{key} by {worker}: {value[:300]!r} after {before[:300]!r}"
            self._broken("equal_key_equal_bytes", detail)
        if before is not value:
            self.report.figures["said_again"] += 1
            return
        record = output.record
        if isinstance(record, Capacity):
            self._capacity(record)
        elif isinstance(record, DeadLetter):
            self.letters[record.topic, record.partition, record.offset] = record.reason
        elif isinstance(record, Command) and record.decider in ("evict_memory", "evict_cpu"):
            self._order(record)

    def recovered(self, worker: str, partition: int, how: str) -> None:
        at_ms = self._broker.now_ms - self._start_ms
        self.report.tell(at_ms, f"{worker} goes on with {partition} from {how}")

    def digest(self) -> str:
        """Of everything said, by key."""
        whole = hashlib.sha256()
        for key in sorted(self.bytes):
            whole.update(repr(key).encode() + self.bytes[key])
        return whole.hexdigest()[:32]

    def _capacity(self, record: Capacity) -> None:
        last = self.capacity.get(record.node)
        amounts = _amounts(record)
        if min(amounts) < 0:
            self._broken("capacity_not_negative", f"{record}")
        stale = self._sample_age_ms(record) > STALE_MS
        if stale or record.reason in DOUBT:
            lent = _terms(record, "lent")
            least = list(lent)
            if record.reason != "cold" and last is not None:
                before, whole = _amounts(last), _terms(record, "capacity")
                # A fall that was real and too small to be said may lie between.
                hidden = [max(b // 10, w // 100) for b, w in zip(before, whole, strict=True)]
                least = [min(owed, b - h) for owed, b, h in zip(lent, before, hidden, strict=True)]
            if any(amount < owed for amount, owed in zip(amounts, least, strict=True)):
                self._broken("doubt_keeps_what_is_lent", f"{record} after {last}")
            if record.new_work:
                self._broken("doubt_keeps_what_is_lent", f"new work in doubt: {record}")
        if last is None or last.cause.offset < record.cause.offset:
            self.capacity[record.node] = record

    def _sample_age_ms(self, record: Capacity) -> int:
        """How old the node's newest sample in the log was when this was decided."""
        log = self._broker.whole("samples", record.cause.partition)
        key = record.node.encode()
        for sample in reversed(log[: record.cause.offset + 1]):
            if sample.key == key:
                return record.cause.log_ms - sample.timestamp
        return STALE_MS + 1

    def _order(self, record: Command) -> None:
        """An eviction order: within the budget of the fleet, none while most nodes are ill."""
        self.report.figures["eviction_orders"] += 1
        if record.reason in ALONE.values():
            if len(record.pods) > 1:
                self._broken("blast_radius", f"{record.pods} while the fleet is unknown")
            return
        if len(record.pods) > self.fleet_budget:
            self._broken("blast_radius", f"{len(record.pods)} pods, budget {self.fleet_budget}")
        now_ms = record.cause.log_ms
        if self.ill_since_ms is not None and now_ms - self.ill_since_ms > SPAN_MS // 2:
            self._broken("blast_radius", f"{record.id} while most nodes are ill")
        self._orders.append((now_ms, len(record.pods)))
        recent = sum(pods for at_ms, pods in self._orders if abs(now_ms - at_ms) < SPAN_MS)
        if recent > ORDERS_PER_SPAN * self.fleet_budget:
            self._broken("blast_radius", f"{recent} pods ordered out in {SPAN_MS} ms")
        while self._orders[0][0] < now_ms - 3 * SPAN_MS:
            self._orders.popleft()

    def _broken(self, invariant: str, detail: str) -> None:
        self.report.broken(invariant, self._broker.now_ms - self._start_ms, detail)
