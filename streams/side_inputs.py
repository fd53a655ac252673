"""The side topics, read without a group and buffered until a tick admits their records.

Used by `streams.worker`: the engine asks for the records that a tick admits, the ticker for the
vector to put into the next tick. One reader serves all partitions a worker owns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agents.log import Output, SideRecord
from schemas import codec, ledger, slis, topics
from schemas.errors import BadRecord
from schemas.records import FLEET_KEY, INSTALLATION_KEY, FleetFacts, Installation, LedgerEntry, Sli
from streams.intake import Check, dead_letter, unchecked
from streams.metrics import Metrics
from streams.settings import WorkerSettings

log = logging.getLogger(__name__)

RECENT_RECORDS = 2_000  # of topics that are not facts but news, when a partition begins cold
NEWS = ("acks", "fleet", "slis")
READ_MS = 200
READ_RECORDS = 1_000
FLEET_KINDS: dict[bytes, type[Any]] = {FLEET_KEY: FleetFacts, INSTALLATION_KEY: Installation}


class SideLog:
    """What is buffered of one partition of one side topic: [start, next) without the trimmed."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.start = 0
        self.next = 0
        self.wanted: dict[int, int] = {}  # owner partition -> last offset it has applied
        self.sought = False
        self.awaited = False  # a tick admits more than has been read
        self._offsets: list[int] = []
        self._records: list[SideRecord] = []

    @property
    def name(self) -> str:
        """The key in a tick's vector."""
        return f"{self.topic}/{self.partition}"

    def restart(self, offset: int) -> None:
        """Forget all; the next record read is at ``offset`` or after."""
        self.start = self.next = offset
        self._offsets, self._records = [], []
        self.sought = False

    def put(self, record: SideRecord) -> None:
        self._offsets.append(record.offset)
        self._records.append(record)

    def between(self, above: int, upto: int) -> list[SideRecord]:
        """Records in (above, upto]."""
        low = bisect_right(self._offsets, above)
        return self._records[low : bisect_right(self._offsets, upto)]

    def trim(self) -> None:
        """Drop what every owner has applied."""
        if self.wanted:
            applied = min(self.wanted.values())
            cut = bisect_left(self._offsets, applied + 1)
            if cut:
                del self._offsets[:cut]
                del self._records[:cut]
                self.start = max(self.start, applied + 1)


class SideReader:
    """Reads the side topics of every owned partition; `advanced` is set when anything was read."""

    def __init__(
        self,
        settings: WorkerSettings,
        metrics: Metrics,
        refuse: Callable[[int, Iterable[Output]], Awaitable[None]],
        check: Check = unchecked,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._refuse = refuse
        self._check = check
        self._logs: dict[tuple[str, int], SideLog] = {}
        self._names = {settings.topic(name): name for name in topics.SIDE_TOPICS}
        self._consumer: AIOKafkaConsumer | None = None
        self._to_read: dict[int, dict[tuple[str, int], int]] = {}  # owner -> ends when it began
        self._stale = False  # the assignment or a position must be set anew
        self.advanced = asyncio.Event()

    async def start(self) -> None:
        """Connect; nothing is read before the first `own`."""
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._settings.brokers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=READ_RECORDS,
            fetch_max_wait_ms=READ_MS,
        )
        await self._consumer.start()

    async def stop(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            await self._consumer.stop()
            self._consumer = None

    async def own(
        self, partition: int, applied: Mapping[str, int], *, cold: bool
    ) -> dict[str, int]:
        """Begin to buffer for a partition whose state has applied ``applied``.

        Returns the vector to start from: ``applied``, and where news begin for a cold partition.
        """
        begin = dict(applied)
        wanted = [(name, self._of(name, partition)) for name in topics.SIDE_TOPICS]
        consumer = self._consumer
        assert consumer is not None, "start() comes first"
        at = {TopicPartition(self._settings.topic(n), p): (n, p) for n, p in wanted}
        found = await consumer.end_offsets(list(at))
        ends = {at[where]: int(end) for where, end in found.items()}
        if cold:
            for name, number in wanted:
                if name in NEWS and f"{name}/{number}" not in begin:
                    begin[f"{name}/{number}"] = max(ends[name, number] - RECENT_RECORDS, 0) - 1
        for name, number in wanted:
            key = (name, number)
            offset = begin.get(f"{name}/{number}", -1)
            side = self._logs.get(key)
            if side is None:
                side = self._logs[key] = SideLog(name, number)
                side.restart(offset + 1)
                self._stale = True
            elif offset + 1 < side.start:
                side.restart(offset + 1)
                self._stale = True
            side.wanted[partition] = offset
        self._to_read[partition] = ends
        return begin

    def caught_up(self, partition: int) -> bool:
        """Whether all is read that was there when this partition began: before, no tick may say
        what is known, for it would decide without policy, pods or what is lent.
        """
        left = self._to_read.get(partition, {})
        for key, end in list(left.items()):
            side = self._logs.get(key)
            if side is not None and side.next < end:
                side.awaited = True  # the end may be a hole
                return False
            del left[key]
        return True

    def release(self, partition: int) -> None:
        """A partition is no longer owned."""
        self._to_read.pop(partition, None)
        for key, side in list(self._logs.items()):
            side.wanted.pop(partition, None)
            if not side.wanted:
                del self._logs[key]
                self._stale = True

    def vector(self, partition: int) -> dict[str, int]:
        """For the next tick of a partition: the last offset read of each of its side partitions."""
        found = {}
        for name in topics.SIDE_TOPICS:
            side = self._logs.get((name, self._of(name, partition)))
            if side is not None and side.sought and side.next > 0:
                found[side.name] = side.next - 1
        return found

    def admit(
        self, partition: int, applied: Mapping[str, int], tick: Mapping[str, int]
    ) -> tuple[SideRecord, ...] | None:
        """Records in (applied, tick] of this partition's side topics; None: not read so far yet."""
        found: list[SideRecord] = []
        for name in topics.SIDE_TOPICS:
            key = (name, self._of(name, partition))
            label = f"{key[0]}/{key[1]}"
            upto = tick.get(label, -1)
            above = applied.get(label, -1)
            if upto <= above:
                continue
            side = self._logs.get(key)
            if side is None:
                return None
            if side.next <= upto:
                side.awaited = True
                return None
            found.extend(side.between(above, upto))
        found.sort(key=lambda record: (record.topic, record.partition, record.offset))
        return tuple(found)

    def applied(self, partition: int, vector: Mapping[str, int]) -> None:
        """A partition has applied up to ``vector``: drop what nobody needs any more."""
        for name in topics.SIDE_TOPICS:
            side = self._logs.get((name, self._of(name, partition)))
            if side is not None and partition in side.wanted:
                side.wanted[partition] = vector.get(side.name, -1)
                side.trim()

    async def run(self) -> None:
        """Read for ever; the worker's task. Broker trouble is waited out."""
        while True:
            try:
                await self._read_once()
            except KafkaError as error:
                log.warning("side inputs: %r; trying again", error)
                self._stale = True
                await asyncio.sleep(1.0)

    async def _read_once(self) -> None:
        consumer = self._consumer
        assert consumer is not None, "start() comes first"
        if self._stale:
            self._stale = False
            self._assign(consumer)
        if not self._logs:
            await asyncio.sleep(READ_MS / 1000)
            return
        batches = await consumer.getmany(timeout_ms=READ_MS)
        if self._stale:
            return  # positions change before the next read: these may leave a hole
        for where, records in batches.items():
            side = self._logs.get((self._names[where.topic], where.partition))
            if side is not None:
                await self._take(side, records)
        await self._skip_holes(consumer)
        if batches:
            self.advanced.set()

    def _assign(self, consumer: AIOKafkaConsumer) -> None:
        where = {
            TopicPartition(self._settings.topic(side.topic), side.partition): side
            for side in self._logs.values()
        }
        consumer.assign(list(where))
        for partition, side in where.items():
            consumer.seek(partition, side.next)
            side.sought = True

    async def _skip_holes(self, consumer: AIOKafkaConsumer) -> None:
        """Where somebody waits: compaction leaves offsets without record; the position knows."""
        for side in [side for side in self._logs.values() if side.awaited and side.sought]:
            where = TopicPartition(self._settings.topic(side.topic), side.partition)
            with contextlib.suppress(TimeoutError):
                position = await asyncio.wait_for(consumer.position(where), 0.5)
                if side.sought and position > side.next:
                    side.next = position
                    self.advanced.set()
            side.awaited = False

    async def _take(self, side: SideLog, records: list[Any]) -> None:
        refused: list[Output] = []
        for record in records:
            if record.offset < side.next:
                continue
            side.next = record.offset + 1
            try:
                decoded = decode(side.topic, record, self._check)
            except BadRecord as error:
                refused.append(dead_letter(side.topic, record, error))
                continue
            if decoded is not None:
                side.put(decoded)
        self._metrics.add("side_read_total", side.topic, by=len(records))
        if refused:
            await self._refuse(next(iter(side.wanted), side.partition), refused)

    @staticmethod
    def _of(topic: str, partition: int) -> int:
        return partition if topics.BY_NAME[topic].partitioned else 0


def decode(topic: str, record: Any, check: Check = unchecked) -> SideRecord | None:
    """A side record; None for a key that no partition needs. Raises BadRecord."""
    check(topic, record.key, record.headers, record.value)
    key: bytes = record.key or b""
    row = topics.BY_NAME[topic]
    if topic == "fleet":
        kind = FLEET_KINDS.get(key)
        if kind is None:
            return None
    elif topic == "ledger":
        if ledger.kind_of(key) is not LedgerEntry:
            return None  # claims and their answers: what is held is what counts here
        kind = LedgerEntry
    else:
        kind = row.records[0]
    if record.value is None:
        return SideRecord(topic, record.partition, record.offset, key, None)
    if codec.encoding_of(record.headers) != codec.ENC_JSON:
        raise BadRecord("unknown_encoding", f"{topic} is JSON only")
    value = codec.decode(kind, record.value)
    node = getattr(value, "node", None)
    if topic == "ledger":
        ledger.check(ledger.parse(key), value)
    elif node is not None and node.encode() != key:
        raise BadRecord("key_mismatch", f"key {key[:64]!r}, node {node[:64]!r}")
    if isinstance(value, Sli):
        slis.check(value, record.timestamp)
    return SideRecord(topic, record.partition, record.offset, key, value, record.timestamp)
