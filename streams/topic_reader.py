"""Short reads of topics without a consumer group, for commands and for start-up.

Called by the commands `topics`, `policy`, `explain` and `fleet`, and by the second stage when it
starts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner

from streams.leave import stopped

CONNECT_S = 8.0
REQUEST_MS = 8_000
POLL_MS = 200
FETCH_WAIT_MS = 100
APPEAR_S = 2.0
AGAIN_S = 0.1


class CannotRun(Exception):
    """A command cannot do its work; the message says what is wrong and what to do."""

    says_what_to_do = True


@asynccontextmanager
async def started(client: Any, brokers: str) -> AsyncIterator[Any]:
    """Start an aiokafka client and stop it afterwards. Raises CannotRun when no broker answers."""
    try:
        await asyncio.wait_for(client.start(), CONNECT_S)
    except (KafkaError, OSError, TimeoutError) as error:
        await _close(client)
        why = str(error) or type(error).__name__
        raise CannotRun(
            f"no Kafka broker answers at {brokers} ({why}): start one with "
            "`slackwater dev-broker`, or name another with --brokers or SLACKWATER_BROKERS"
        ) from None
    try:
        yield client
    finally:
        await _close(client)


def admin(brokers: str) -> AIOKafkaAdminClient:
    """An admin client that gives up on a request after 8 s."""
    return AIOKafkaAdminClient(bootstrap_servers=brokers, request_timeout_ms=REQUEST_MS)


def consumer(brokers: str) -> AIOKafkaConsumer:
    """A consumer without a group; the caller assigns partitions and seeks."""
    return AIOKafkaConsumer(
        bootstrap_servers=brokers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        request_timeout_ms=REQUEST_MS,
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )


def producer(brokers: str) -> AIOKafkaProducer:
    """An idempotent producer that waits for all replicas, for 30 s at most."""
    return AIOKafkaProducer(
        bootstrap_servers=brokers,
        acks="all",
        enable_idempotence=True,
        request_timeout_ms=30_000,
    )


async def partitions_of(client: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    """The partitions of a topic. Raises CannotRun when no broker knows it within two seconds."""
    deadline = time.monotonic() + APPEAR_S
    while True:
        await client._client.force_metadata_update()  # noqa: SLF001 - topics() alone may be stale
        known = topic in await client.topics()
        numbers = client.partitions_for_topic(topic) if known else None
        if numbers:
            break
        if time.monotonic() > deadline:
            raise CannotRun(f"topic {topic} does not exist: run `slackwater topics create`")
        await asyncio.sleep(AGAIN_S)
    return [TopicPartition(topic, number) for number in sorted(numbers)]


async def to_end(client: AIOKafkaConsumer, parts: Iterable[TopicPartition]) -> AsyncIterator[Any]:
    """Records of assigned partitions from where they stand to the end as it is now.

    Holes that compaction left are passed over; order holds within a partition only.
    """
    ends = await client.end_offsets(list(parts))
    left = set()
    for part, end in ends.items():
        if await client.position(part) < end:
            left.add(part)
    while left:
        batches = await client.getmany(*left, timeout_ms=POLL_MS)
        for part, records in batches.items():
            for record in records:
                if record.offset < ends[part]:
                    yield record
        for part in tuple(left):
            if await client.position(part) >= ends[part]:
                left.discard(part)


async def whole(brokers: str, topic: str) -> AsyncIterator[Any]:
    """Every record that a topic has now, from its beginning."""
    async with started(consumer(brokers), brokers) as client:
        parts = await partitions_of(client, topic)
        client.assign(parts)
        await client.seek_to_beginning(*parts)
        async for record in to_end(client, parts):
            yield record


async def newest_by_key(brokers: str, topic: str) -> dict[bytes | None, Any]:
    """The newest record of each key of a topic; a tombstone removes its key."""
    found: dict[bytes | None, Any] = {}
    async for record in whole(brokers, topic):
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record
    return found


async def span_of_key(
    brokers: str, topic: str, key: bytes, span_ms: tuple[int, int] | None = None
) -> AsyncIterator[Any]:
    """Records of the one partition that ``key`` hashes to, other keys too; all, or of a time."""
    async with started(consumer(brokers), brokers) as client:
        parts = await partitions_of(client, topic)
        choose: Callable[..., int] = DefaultPartitioner()
        mine = choose(key, [part.partition for part in parts], [])
        part = next(part for part in parts if part.partition == mine)
        client.assign([part])
        await client.seek_to_beginning(part)
        if span_ms is not None:
            found = (await client.offsets_for_times({part: max(span_ms[0], 0)}))[part]
            if found is None:
                return
            client.seek(part, found.offset)
        async for record in to_end(client, [part]):
            if span_ms is not None and record.timestamp > span_ms[1]:
                return
            yield record


async def newest_of(brokers: str, topic: str, key: bytes) -> Any:
    """The newest record of one key, a tombstone too; None when the topic has none."""
    newest = None
    async for record in span_of_key(brokers, topic, key):
        if record.key == key:
            newest = record
    return newest


async def _close(client: Any) -> None:
    """A consumer has nothing to lose, and one whose broker is away would not end by itself."""
    if isinstance(client, AIOKafkaConsumer):
        await stopped(client.stop)
    else:
        await (client.close if isinstance(client, AIOKafkaAdminClient) else client.stop)()
