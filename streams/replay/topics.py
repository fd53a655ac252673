"""The topics of a cluster as a source of records: replay without a recording between.

`TopicSource` has the callables of `streams.recording.Recording`. It is synchronous, with an event
loop of its own: use it on a thread on which no loop runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from schemas import codec, topics
from schemas.topics import full_name
from streams.recording.manifest import Manifest
from streams.recording.segment import Record
from streams.topic_reader import POLL_MS, CannotRun, consumer, started
from streams.topics_admin import installation_of

POLL_RECORDS = 2_000


class TopicSource:
    """What the topics of one installation hold now; later records are not seen."""

    def __init__(self, brokers: str, prefix: str) -> None:
        """Raises CannotRun when no broker answers, or nothing is installed there."""
        self._brokers, self._prefix = brokers, prefix
        self._runner = asyncio.Runner()
        self._readers: list[AIOKafkaConsumer] = []
        self._idle: list[AIOKafkaConsumer] = []
        self._spans: dict[tuple[str, int], tuple[int, int]] = {}
        try:
            self.manifest = self._runner.run(self._look())
        except BaseException:
            self._runner.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the broker; what is still being read ends."""
        for client in self._readers:
            self._runner.run(client.stop())
        self._runner.close()

    def partitions(self, topic: str = "samples") -> tuple[int, ...]:
        """The partitions of a topic that have records, sorted."""
        return tuple(sorted(n for (t, n), (a, z) in self._spans.items() if t == topic and a < z))

    def last(self, topic: str, partition: int) -> int:
        """The highest offset there was at the start; -1 for none."""
        first, end = self._spans.get((topic, partition), (0, 0))
        return end - 1 if first < end else -1

    def since(self, topic: str, partition: int, ms: int) -> int:
        """The first offset appended at ``ms`` or later."""
        return self._runner.run(self._since(self._where(topic, partition), ms))

    def fault(self, topic: str, partition: int, above: int, upto: int) -> str:
        """What retention took: the topic begins above ``above``, and compaction did not do it."""
        first, _ = self._spans.get((topic, partition), (0, 0))
        if topics.BY_NAME[topic].compacted or first <= above + 1 or first > upto + 1:
            return ""
        return f"{topic}/{partition} begins at offset {first} by now: retention took the rest"

    def records(
        self, topic: str, partition: int, above: int = -1, upto: int | None = None
    ) -> Iterator[Record]:
        """Records with offsets in (above, upto], in order. Raises KafkaError."""
        first, end = self._spans.get((topic, partition), (0, 0))
        begin = max(first, above + 1)
        end = end if upto is None else min(end, upto + 1)
        if begin >= end:
            return
        where = self._where(topic, partition)
        client = self._runner.run(self._reader(where, begin))
        try:
            at = begin
            while at < end:
                found, at = self._runner.run(_poll(client, where))
                for each in found:
                    if each.offset >= end:
                        return
                    yield Record(
                        topic, partition, each.offset, each.timestamp, each.key, each.value,
                        tuple(each.headers),
                    )  # fmt: skip
        finally:
            self._idle.append(client)  # no more: this may be the collector's moment

    def _where(self, topic: str, partition: int) -> TopicPartition:
        return TopicPartition(full_name(self._prefix, topic), partition)

    async def _look(self) -> Manifest:
        installed = await installation_of(self._brokers, self._prefix)
        if installed is None:
            raise CannotRun(f"no installation under {self._prefix!r} at {self._brokers}")
        async with started(consumer(self._brokers), self._brokers) as client:
            every = {
                self._where(topic.name, number): (topic.name, number)
                for topic in topics.TOPICS
                for number in range(topics.partitions_of(topic, installed.partitions))
            }
            first = await client.beginning_offsets(list(every))
            end = await client.end_offsets(list(every))
        self._spans = {place: (first[w], end[w]) for w, place in every.items()}
        return Manifest(
            kind="recording", prefix=self._prefix, incarnation=installed.incarnation,
            partitions=installed.partitions, software=version("slackwater"),
            schema_version=codec.VERSION, made_ms=0,
        )  # fmt: skip

    async def _reader(self, where: TopicPartition, begin: int) -> AIOKafkaConsumer:
        """One that nobody reads from any more, or a new one."""
        if self._idle:
            client = self._idle.pop()
        else:
            client = consumer(self._brokers)
            await client.start()
            self._readers.append(client)
        client.assign([where])
        client.seek(where, begin)
        return client

    async def _since(self, where: TopicPartition, ms: int) -> int:
        async with started(consumer(self._brokers), self._brokers) as client:
            found = (await client.offsets_for_times({where: max(ms, 0)}))[where]
            return int(
                (await client.end_offsets([where]))[where] if found is None else found.offset
            )


async def _poll(client: AIOKafkaConsumer, where: TopicPartition) -> tuple[list[Any], int]:
    """Some records, and the offset that comes next: compaction leaves holes at the end too."""
    batches = await client.getmany(where, timeout_ms=POLL_MS, max_records=POLL_RECORDS)
    return batches.get(where, []), await client.position(where)
