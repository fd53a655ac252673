"""What is said to this node: commands and leases of its partition, and the policies.

`node_agent.loop` runs one `Reader` a topic. A reader belongs to no consumer group, so nothing is
rebalanced: it assigns itself, starts a little before the end (the standing command and its
renewals are there) or at the beginning (policies), and goes on where it was after every loss of
the broker. Wall clocks are not asked: "before the end" is measured from the last record's time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.partitioner import murmur2

from node_agent.outbox import stop_client
from schemas import codec
from schemas.errors import BadRecord

BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
HISTORY_MS = 300_000
METADATA_S = 10.0
METADATA_POLL_S = 0.05
WARN_EVERY_S = 10.0  # a flood of bad records is no flood of lines
POLL_MS = 5_000  # how long an empty poll lasts; a record ends it at once, here and at the broker
LOOK_MS = 1_000  # how often the client looks round for itself; what happens wakes it anyway
LAST_RECORD_MS = 3_000
LAYOUT_CHECK_POLLS = 12  # about once a minute: has the topic another number of partitions?

log = logging.getLogger(__name__)
Deliver = Callable[[ConsumerRecord], Awaitable[None]]


class TopicMissing(KafkaError):  # type: ignore[misc]  # aiokafka ships no types
    """The topic is not there (yet), or was made anew with other partitions."""


def partition_of(node: str, partitions: int) -> int:
    """The partition of a node's key, as Kafka's default partitioner says."""
    return int((murmur2(node.encode()) & 0x7FFFFFFF) % partitions)


def said(topic: str, record: ConsumerRecord) -> Any:
    """The record of a topic (its name in the table); None where one was taken back.

    Encoding and schema version are those that the headers name. Raises BadRecord.
    """
    if record.value is None:
        return None
    return codec.read(topic, record.key, record.value, record.headers)


class Reader:
    """Reads one topic for ever; ``deliver`` gets each record, in order, and may raise BadRecord."""

    def __init__(
        self,
        brokers: str,
        client_id: str,
        topic: str,
        deliver: Deliver,
        *,
        node: str | None,
        history_ms: int | None,
    ) -> None:
        """``node``: only its partition, None: all. ``history_ms`` None: from the beginning."""
        self.connected = False
        self.refused: Counter[str] = Counter()  # records, by reason
        self.history_end: dict[int, int] = {}  # by partition, as first found
        self._brokers, self._client_id, self._topic = brokers, client_id, topic
        self._deliver, self._node, self._history_ms = deliver, node, history_ms
        self._next: dict[TopicPartition, int] = {}
        self._warned_s = -WARN_EVERY_S

    async def run(self) -> None:
        """Read until cancelled; a broker that is away is tried again with growing pauses."""
        failures = 0
        while True:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._brokers,
                client_id=self._client_id,
                group_id=None,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=POLL_MS,
                consumer_timeout_ms=LOOK_MS,
            )
            try:
                await consumer.start()
                assigned = await self._assign(consumer)
                self.connected, failures = True, 0
                await self._read(consumer, assigned)
            except (KafkaError, OSError) as error:
                log.warning("%s at %s: %s; the local law holds", self._topic, self._brokers, error)
            finally:
                self.connected = False
                await stop_client(consumer)
            await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1

    async def _assign(self, consumer: AIOKafkaConsumer) -> int:
        """Assign and seek; how many partitions the topic has."""
        consumer.assign([TopicPartition(self._topic, 0)])  # makes the client ask for the topic
        try:
            count = await asyncio.wait_for(self._partitions(consumer), METADATA_S)
        except TimeoutError:
            raise TopicMissing("no such topic; run `slackwater topics create`") from None
        chosen = range(count) if self._node is None else [partition_of(self._node, count)]
        places = [TopicPartition(self._topic, each) for each in chosen]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        begins = await consumer.beginning_offsets(places)
        for place in places:
            self.history_end.setdefault(place.partition, ends[place])
            at = self._next.get(place)
            if at is None or not begins[place] <= at <= ends[place]:
                at = await self._start(consumer, place, begins[place], ends[place])
            self._next[place] = at
        consumer.assign(places)  # anew: what was asked for on the way is not waited for
        for place in places:
            consumer.seek(place, self._next[place])
        return count

    async def _partitions(self, consumer: AIOKafkaConsumer) -> int:
        """How many partitions the topic has, as soon as the client knows."""
        while not (found := consumer.partitions_for_topic(self._topic)):  # noqa: ASYNC110 (client has no event)
            await asyncio.sleep(METADATA_POLL_S)
        return len(found)

    async def _start(
        self, consumer: AIOKafkaConsumer, place: TopicPartition, begin: int, end: int
    ) -> int:
        """Where to begin: the beginning, or ``history_ms`` before the last record's time."""
        if self._history_ms is None or begin == end:
            return begin
        consumer.seek(place, end - 1)
        last = await consumer.getmany(place, timeout_ms=LAST_RECORD_MS, max_records=1)
        if not last.get(place):
            return begin
        since_ms = last[place][0].timestamp - self._history_ms
        found = (await consumer.offsets_for_times({place: max(0, since_ms)})).get(place)
        return begin if found is None else int(found.offset)

    async def _read(self, consumer: AIOKafkaConsumer, assigned: int) -> None:
        polls = 0
        while True:
            for place, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
                for record in records:
                    try:
                        await self._deliver(record)
                    except BadRecord as error:
                        self._refuse(record.offset, error)
                    self._next[place] = record.offset + 1
            polls += 1
            if polls % LAYOUT_CHECK_POLLS == 0:
                now = len(consumer.partitions_for_topic(self._topic) or ())
                if now not in (0, assigned):
                    raise TopicMissing(f"{now} partitions instead of {assigned}")

    def _refuse(self, offset: int, error: BadRecord) -> None:
        self.refused[error.reason] += 1
        now = monotonic()
        if now - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now
            text = "%s@%d refused: %s (%d so far)"
            log.warning(text, self._topic, offset, error, self.refused.total())
