"""The public windowed table: per node and minute, what was said of reservations, signals, capacity.

Written by the table agent of `streams.fleet_app`, read by anyone from its changelog topic (see
`read_minutes`); `agents.step` never reads it. A Faust tumbling table with four manners of our own:

- The window is chosen by the time of the cause (``cause.log_ms``), never by a wall clock.
- Faust's expiry is off. It goes by the wall clock, keeps a heap entry for every write, and never
  expires what was restored from the changelog. `MinuteTable.prune` drops windows that ended
  `KEEP_MS` before the newest window of their partition, restored ones included; it bounds memory.
  Each partition has its own newest, so that one that lags is not robbed by one that does not.
  The changelog, which readers read, is bounded by its topic: compacted, and deleted after two
  hours.
- A row remembers the newest (incarnation, offset) it counted of each source, so that a record
  delivered twice, or by a worker that lost its partition, is counted once.
- Keys are str and values are bytes: what Faust restores as it wrote it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import faust
import orjson
from aiokafka import TopicPartition
from aiokafka.partitioner import DefaultPartitioner

from schemas import codec
from schemas.errors import BadRecord
from schemas.records import Capacity, NodeMinute, Reservation, Signal
from schemas.topics import MINUTES, full_name
from streams.topic_reader import consumer, partitions_of, started, to_end

SOURCES = ("capacity", "reservations", "signals")
MINUTE_MS = 60_000
KEEP_MS = 10 * MINUTE_MS
AHEAD_MS = MINUTE_MS  # a cause may not be later than the record by more
Said = Reservation | Signal | Capacity


def fold(row: NodeMinute, topic: str, said: Said) -> NodeMinute | None:
    """The row with one more record of ``topic``; None when it counted that one already."""
    order = (said.cause.incarnation, said.cause.offset)
    if order <= row.seen.get(topic, (-1, -1)):
        return None
    seen = {**row.seen, topic: order}
    if isinstance(said, Reservation):
        cpu, memory = said.cpu_milli, said.memory_bytes
        return replace(
            row,
            seen=seen,
            reservations=row.reservations + 1,
            cpu_usage_max_milli=_most(row.cpu_usage_max_milli, cpu.get("usage")),
            cpu_short_max_milli=_most(row.cpu_short_max_milli, cpu.get("short")),
            cpu_long_max_milli=_most(row.cpu_long_max_milli, cpu.get("long")),
            memory_usage_max_bytes=_most(row.memory_usage_max_bytes, memory.get("usage")),
            memory_short_max_bytes=_most(row.memory_short_max_bytes, memory.get("short")),
            memory_long_max_bytes=_most(row.memory_long_max_bytes, memory.get("long")),
        )
    if isinstance(said, Signal):
        scores = [*said.pressure_score_permille, *said.wait_score_permille]
        return replace(
            row,
            seen=seen,
            signals=row.signals + 1,
            ill_signals=row.ill_signals + said.ill,
            score_max_permille=_most(row.score_max_permille, *scores),
        )
    return replace(
        row,
        seen=seen,
        capacities=row.capacities + 1,
        batch_cpu_milli=said.batch_cpu_milli,
        batch_memory_bytes=said.batch_memory_bytes,
        new_work=said.new_work,
        mid_cpu_milli=said.mid_cpu_milli,
        mid_memory_bytes=said.mid_memory_bytes,
    )


def read_source(topic: str, key: bytes | None, value: bytes, headers: Any, log_ms: int) -> Said:
    """A checked record of a source topic, appended at ``log_ms``. Raises BadRecord."""
    said: Said = codec.read(topic, key, value, headers)
    if said.node.encode() != key:
        raise BadRecord("key_mismatch", f"key {key!r:.80}, node {said.node:.64}")
    if not 0 <= said.cause.log_ms <= log_ms + AHEAD_MS:
        raise BadRecord("future_clock", f"cause at {said.cause.log_ms}, appended at {log_ms}")
    return said


class MinuteTable:
    """The Faust table behind `fold`; `count` may be called inside a stream's iteration only."""

    def __init__(self, app: faust.App) -> None:
        self._at_s = 0.0
        self._newest_ms: dict[int, int] = {}  # partition -> start of its newest window
        self._home: dict[str, int] = {}  # node -> partition
        table = app.Table("minutes", key_type=str, value_type=bytes, default=bytes)
        windows: Any = table.tumbling(MINUTE_MS / 1000)  # Faust's type lacks relative_to
        self._windows = windows.relative_to(self._now)

    def count(self, topic: str, said: Said, partition: int) -> str:
        """Count a record of a partition in its minute's row: "counted", "repeat" or "late"."""
        start_ms = said.cause.log_ms // MINUTE_MS * MINUTE_MS
        newest_ms = self._newest_ms.get(partition, 0)
        if start_ms + MINUTE_MS + KEEP_MS <= newest_ms:
            return "late"  # its row may be gone: a new one would be wrong
        self._newest_ms[partition] = max(newest_ms, start_ms)
        self._home[said.node] = partition
        self._at_s = start_ms / 1000
        windows = self._windows[said.node]
        stored = windows.value()
        row = codec.decode(NodeMinute, stored) if stored else NodeMinute(said.node, start_ms)
        after = fold(row, topic, said)
        if after is None:
            return "repeat"
        self._windows[said.node] = codec.encode(after)
        return "counted"

    def prune(self) -> int:
        """Forget rows that ended `KEEP_MS` before their partition's newest; how many went."""
        store = self._windows.table.data
        restored = store._key_partition  # noqa: SLF001 - grows with every restored row
        starts = {key: round(key[1][0] * 1000) for key in store}
        for key, start_ms in starts.items():
            if key in restored:
                self._home[key[0]] = restored[key]
            home = self._home[key[0]]
            self._newest_ms[home] = max(self._newest_ms.get(home, 0), start_ms)
        old = [
            key
            for key, start_ms in starts.items()
            if start_ms + MINUTE_MS + KEEP_MS <= self._newest_ms[self._home[key[0]]]
        ]
        for key in old:
            # From the store, not through the table: outside a stream the table refuses, and the
            # changelog's own retention removes the rest.
            store.data.pop(key, None)
            restored.pop(key, None)
        nodes = {node for node, _ in store}
        self._home = {node: home for node, home in self._home.items() if node in nodes}
        return len(old)

    def __len__(self) -> int:
        return len(self._windows.table.data)

    def _now(self, event: Any = None) -> float:
        del event  # the window is that of the record being counted
        return self._at_s


async def read_minutes(brokers: str, prefix: str, node: str, minutes: int) -> list[NodeMinute]:
    """The newest rows of a node, oldest first, from the changelog; empty when it has none."""
    rows: dict[int, NodeMinute] = {}
    name = full_name(prefix, MINUTES)
    async with started(consumer(brokers), brokers) as client:
        parts = await partitions_of(client, name)
        part = TopicPartition(name, _partition(node, len(parts)))
        client.assign([part])
        await client.seek_to_beginning(part)
        async for record in to_end(client, [part]):
            if record.value is None or orjson.loads(record.key)[0] != node:
                continue
            row = codec.decode(NodeMinute, record.value)
            rows[row.start_ms] = row
    return [rows[start_ms] for start_ms in sorted(rows)[-minutes:]]


def _partition(node: str, count: int) -> int:
    everywhere = list(range(count))
    choose: Callable[..., int] = DefaultPartitioner()
    return choose(node.encode(), everywhere, everywhere)


def _most(*values: int | None) -> int | None:
    """The largest value that is there; absent is not zero."""
    return max((value for value in values if value is not None), default=None)
