"""What the bridge knows: the newest capacity of each node and what is lent there. No I/O.

`scheduler_bridge.loop` folds every record of ``capacity`` and ``ledger`` into it, in any order of
partitions and as often as it likes: older or equal records never win.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_bridge.ledger.amounts import MAX_AMOUNT
from scheduler_bridge.ledger.book import Book, Folded
from scheduler_bridge.log_clock import LogClock
from scheduler_bridge.reconcile import Amount, Desired
from schemas import codec
from schemas.errors import BadRecord
from schemas.records import Capacity


class View:
    """Desired capacity and lent amounts by node; bounded by the nodes that exist."""

    def __init__(self) -> None:
        self.desired: dict[str, Desired] = {}
        self.book = Book()
        self._clock = LogClock()
        self.now_ms, self.saw = self._clock.now_ms, self._clock.saw

    @property
    def lent(self) -> Mapping[str, Amount]:
        """What is held of each node, by all schedulers."""
        return self.book.lent

    def fold_capacity(self, key: bytes | None, raw: bytes | None, log_ms: int) -> Folded:
        """Take one record of ``capacity``. Raises BadRecord."""
        if raw is None:
            return self._remove(_text(key))
        record = _checked(codec.decode(Capacity, raw), key)
        _in_range(
            batch_cpu_milli=record.batch_cpu_milli, batch_memory_bytes=record.batch_memory_bytes,
            mid_cpu_milli=record.mid_cpu_milli, mid_memory_bytes=record.mid_memory_bytes,
        )  # fmt: skip
        order = (record.cause.incarnation, record.cause.offset)
        known = self.desired.get(record.node)
        if known is not None and order <= known.order:
            return "old"
        amount = Amount(
            record.batch_cpu_milli, record.batch_memory_bytes, record.mid_cpu_milli,
            record.mid_memory_bytes,
        )  # fmt: skip
        zones = tuple(zip(record.zone_cpu_milli, record.zone_memory_bytes, strict=False))
        self.desired[record.node] = Desired(
            amount, record.new_work, record.reason, order, log_ms, record.cause.policy,
            workloads=record.workloads, zones=zones,
        )  # fmt: skip
        return "new"

    def fold_ledger(
        self,
        key: bytes | None,
        raw: bytes | None,
        partition: int = 0,
        offset: int = 0,
        log_ms: int = 0,
    ) -> Folded:
        """Take one record of ``ledger``, in the order of its partition. Raises BadRecord."""
        return self.book.fold(key, raw, partition, offset, log_ms)

    def _remove(self, node: str) -> Folded:
        """The capacity record was deleted: withdraw as if it were stale, at once."""
        known = self.desired.get(node)
        if known is None:
            return "old"
        self.desired[node] = Desired(
            known.amount, False, "removed", known.order, known.seen_ms, known.policy, removed=True
        )
        return "removed"


def _checked(record: Capacity, key: bytes | None) -> Capacity:
    if key is None or record.node.encode() != key:
        raise BadRecord("key_mismatch", f"key {key!r}, node {record.node[:64]!r}")
    return record


def _in_range(**amounts: int) -> None:
    for name, value in amounts.items():
        if not 0 <= value <= MAX_AMOUNT:
            raise BadRecord("wrong_type", f"{name} is {value}; allowed: 0 to {MAX_AMOUNT}")


def _text(key: bytes | None) -> str:
    if key is None:
        raise BadRecord("key_mismatch", "a tombstone without a key")
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise BadRecord("key_mismatch", f"key {key[:64]!r} is not UTF-8") from None
