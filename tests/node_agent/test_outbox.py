"""The outbox: bounded, acks last to go, and a broker that comes and goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st

from node_agent.inbox import partition_of
from node_agent.outbox import Outbox, Parcel, Spool
from schemas import codec
from schemas.codec import JSON_HEADERS, PACKED_HEADERS
from schemas.records import PolicyRecord
from schemas.topics import BY_NAME, full_name
from streams.dev_broker import DevBroker
from tests.support import patient

PARTITIONS = 3
NODE_TOPICS = ("samples", "acks", "commands", "inventory", "policies")


def mono_us() -> int:
    return time.monotonic_ns() // 1000


def sample(number: int, size: int = 1, topic: str = "samples") -> Parcel:
    return Parcel(topic, b"n1", b"%d" % number + bytes(size), PACKED_HEADERS, is_sample=True)


def ack(number: int, size: int = 1, topic: str = "acks") -> Parcel:
    return Parcel(topic, b"n1", b"%d" % number + bytes(size), JSON_HEADERS, is_sample=False)


async def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + patient(seconds)
    while not condition():
        assert time.monotonic() < end, f"not within {patient(seconds)} s: {what}"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(outbox: Outbox) -> AsyncIterator[None]:
    task = asyncio.create_task(outbox.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def topics(broker: DevBroker, prefix: str, policy: str = "name: default\n") -> None:
    """The node's topics, stamped by the broker, and a policy on its topic."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        made = await admin.create_topics(
            [
                NewTopic(
                    full_name(prefix, name),
                    PARTITIONS if BY_NAME[name].partitioned else 1,
                    1,
                    topic_configs={"message.timestamp.type": "LogAppendTime"},
                )
                for name in NODE_TOPICS
            ]
        )
        assert all(error[1] == 0 for error in made.topic_errors), made
    finally:
        await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    try:
        record = PolicyRecord("default", 1, "", policy)
        name = full_name(prefix, "policies")
        await producer.send_and_wait(
            name, codec.encode(record), key=b"default", headers=JSON_HEADERS
        )
    finally:
        await producer.stop()


async def read_all(broker: DevBroker, topic: str, count: int, node: str = "n1") -> list[bytes]:
    """The first ``count`` values of the node's partition."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, partition_of(node, PARTITIONS))])
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) < count:
                found.append((await consumer.getone()).value)
        return found
    finally:
        await consumer.stop()


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60))
def test_spool_is_bounded_and_drops_the_oldest_samples_before_any_ack(
    puts: list[tuple[bool, int]],
) -> None:
    spool = Spool(max_bytes=120, max_parcels=8)
    for number, (is_sample, size) in enumerate(puts):
        acks_before = spool.others_dropped
        spool.put(sample(number, size) if is_sample else ack(number, size))
        assert len(spool) <= 8
        assert spool.size_bytes <= 120
        if spool.others_dropped > acks_before:
            assert not any(parcel.is_sample for parcel in spool._samples)
    kept = spool.take(100)
    assert spool.size_bytes == 0
    numbers = [p for p in kept if p.is_sample]
    assert numbers == sorted(numbers, key=lambda p: int(p.value.rstrip(b"\0")))
    assert len(kept) + spool.samples_dropped + spool.others_dropped == len(puts)


def test_what_comes_back_keeps_its_place() -> None:
    spool = Spool()
    for number in range(4):
        spool.put(sample(number))
    first = spool.take(2)
    spool.give_back(first)
    assert [p.value[:1] for p in spool.take(9)] == [b"0", b"1", b"2", b"3"]


async def test_records_arrive_in_order_and_tell_broker_time(broker: DevBroker, prefix: str) -> None:
    await topics(broker, prefix)
    told: list[tuple[int, int]] = []
    outbox = Outbox(broker.bootstrap, "t", mono_us, lambda at, sent: told.append((at, sent)))
    name = full_name(prefix, "samples")
    async with running(outbox):
        for number in range(200):
            outbox.put(sample(number, topic=name))
        assert await outbox.drained(20)
    values = await read_all(broker, name, 200)
    assert [int(value.rstrip(b"\0")) for value in values] == list(range(200))
    assert len(told) == outbox.sent == 200
    ahead = [at * 1000 - sent for at, sent in told]
    assert abs(min(ahead) - (time.time_ns() - time.monotonic_ns()) // 1000) < 2_000_000


async def test_record_that_no_broker_takes_does_not_hold_up_the_others(
    broker: DevBroker, prefix: str
) -> None:
    await topics(broker, prefix)
    outbox = Outbox(broker.bootstrap, "t", mono_us, lambda _at, _sent: None)
    name = full_name(prefix, "acks")
    async with running(outbox):
        outbox.put(ack(1, size=2_000_000, topic=name))
        outbox.put(ack(2, topic=name))
        assert await outbox.drained(20)
    assert (outbox.too_large, outbox.sent) == (1, 1)


async def test_broker_that_is_away_at_the_start_costs_old_samples_and_no_ack(
    tmp_path: Path,
) -> None:
    own = DevBroker(data=tmp_path / "kafka")
    await asyncio.to_thread(own.start)
    try:
        await topics(own, "t.")
        await asyncio.to_thread(own.stop)
        outbox = Outbox(own.bootstrap, "t", mono_us, lambda _at, _sent: None, Spool(1 << 20, 50))
        name, acks = full_name("t.", "samples"), full_name("t.", "acks")
        async with running(outbox):
            began = time.monotonic()
            for number in range(100):
                outbox.put(sample(number, topic=name))
                if number % 10 == 0:
                    outbox.put(ack(number, topic=acks))
            assert time.monotonic() - began < 0.5  # nobody waited
            assert not outbox.connected
            assert outbox.spool.samples_dropped == 60
            await asyncio.to_thread(own.start)
            assert await outbox.drained(30)
            values = await read_all(own, name, 40)
        assert [int(v.rstrip(b"\0")) for v in values] == list(range(60, 100))
        said = await read_all(own, acks, 10)
        assert [int(v.rstrip(b"\0")) for v in said] == list(range(0, 100, 10))
    finally:
        await asyncio.to_thread(own.close)
