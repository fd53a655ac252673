"""Faust's Kafka transport, carrying one Faust message for each fetched batch of a partition.

Used by `streams.faust_app` only. Faust spends about 50 us on every message, whatever it holds, so
the message is the batch. Everything else of Faust stays as it is: group membership, rebalances,
fetching, flow control, the agent and its stream, commits.

All seeking happens here, between two fetches: at that point nothing of an older position is in
flight in Faust's fetcher, and Faust's own seeks (to committed offsets, after recovery) are over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from aiokafka.errors import IllegalStateError, KafkaError
from faust.transport.consumer import RecordMap
from faust.transport.drivers.aiokafka import Consumer, Transport
from faust.types import TP

FETCH_S = 0.25  # how long a fetch waits, so that a seek asked for meanwhile waits no longer
IDLE_S = 0.02
CROWD = 8  # partitions in one fetch; fewer are a small flow, which nothing may delay
FULL = 16  # records of a partition from which on a fold's fixed cost no longer shows
PACE_S = 0.04  # pause after a crowded fetch of small batches, so that the next ones are larger


class Desk(Protocol):
    """What the transport asks of the worker; partitions are those of the topic `samples`."""

    def on_assignment(self, partitions: frozenset[int], generation: int) -> None:
        """The partitions owned now; called before every fetch, cheap when nothing changed."""

    def deliverable(self) -> frozenset[int]:
        """Partitions whose position is known."""

    def take_seeks(self) -> dict[int, int]:
        """Positions asked for since the last call."""

    def sought(self, partition: int, offset: int) -> None:
        """The position has been set."""

    def committable(self, partition: int) -> int | None:
        """Newest image's `at` + 1; None before the first."""


class Batch:
    """Records of one partition, in offset order, in the clothes of a single Kafka record."""

    __slots__ = ("offset", "partition", "topic", "value")

    timestamp = None
    timestamp_type = 0
    headers = None
    key = None
    checksum = None
    serialized_key_size = 0
    serialized_value_size = 0

    def __init__(self, records: Sequence[Any]) -> None:
        last = records[-1]
        self.topic: str = last.topic
        self.partition: int = last.partition
        self.offset: int = last.offset
        self.value = records


class BatchConsumer(Consumer):
    """Faust's consumer, with our positions and our committed offsets."""

    transport: BatchTransport
    _pause_s = 0.0  # before the next fetch

    async def _getmany(
        self,
        active_partitions: set[TP] | None,
        timeout: float,  # noqa: ASYNC109  # Faust's signature
    ) -> RecordMap:
        desk, topic = self.transport.desk, self.transport.samples
        await asyncio.sleep(self._pause_s)
        owned = frozenset(tp.partition for tp in self.assignment() if tp.topic == topic)
        desk.on_assignment(owned, self.app.consumer_generation_id)
        await self._seek_as_asked(desk, topic)
        ready = {TP(topic, partition) for partition in desk.deliverable() & owned}
        ready &= active_partitions or set()
        if not ready:  # aiokafka would take an empty set for "all"
            await asyncio.sleep(IDLE_S)
            return {}
        records = await super()._getmany(ready, min(timeout, FETCH_S)) or {}
        small = sum(map(len, records.values())) < FULL * len(records)
        self._pause_s = PACE_S if small and len(records) >= CROWD else 0.0
        return {tp: [Batch(batch)] for tp, batch in records.items() if batch}

    async def _seek_as_asked(self, desk: Desk, topic: str) -> None:
        for partition, offset in desk.take_seeks().items():
            try:
                await self.seek_wait({TP(topic, partition): offset})
            except (IllegalStateError, KafkaError, TimeoutError) as error:
                # Lost meanwhile, or the broker is away: the gate stays shut and asks again.
                self.log.warning("cannot seek %s/%d to %d: %s", topic, partition, offset, error)
            else:
                desk.sought(partition, offset)

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:
        del topics  # one topic only
        return iter(self.assignment())

    def _new_offset(self, tp: TP) -> int | None:
        if tp.topic != self.transport.samples:
            return None
        return self.transport.desk.committable(tp.partition)

    def _should_commit(self, tp: TP, offset: int) -> bool:
        """Also backwards: a group that was reset ahead of the image becomes truthful again."""
        return bool(self._committed_offset[tp] != offset)


class BatchTransport(Transport):
    """Faust's aiokafka transport with the consumer above; ``samples`` is the topic's full name."""

    Consumer = BatchConsumer
    desk: Desk
    samples: str
