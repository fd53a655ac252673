"""The inbox: the node's own partition, a little history, and a broker that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.partitioner import DefaultPartitioner

from node_agent.inbox import Reader, partition_of
from schemas.errors import BadRecord
from schemas.topics import full_name
from streams.dev_broker import DevBroker
from tests.node_agent.test_outbox import PARTITIONS, topics, until


@asynccontextmanager
async def running(reader: Reader) -> AsyncIterator[None]:
    task = asyncio.create_task(reader.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def send(broker: DevBroker, topic: str, *pairs: tuple[bytes, bytes]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    try:
        for key, value in pairs:
            await producer.send_and_wait(topic, value, key=key)
    finally:
        await producer.stop()


def a_reader(
    broker: DevBroker, topic: str, node: str | None, history_ms: int | None
) -> tuple[Reader, list[bytes]]:
    got: list[bytes] = []

    async def deliver(record: ConsumerRecord) -> None:
        if record.value == b"bad":
            raise BadRecord("broken_json", "bad")
        got.append(record.value)

    return (
        Reader(broker.bootstrap, "t", topic, deliver, node=node, history_ms=history_ms),
        got,
    )


@pytest.mark.parametrize("node", ["n1", "node-17", "a", "knoten-ä"])
def test_partition_is_the_default_partitioners(node: str) -> None:
    everyone = list(range(24))
    assert partition_of(node, 24) == DefaultPartitioner()(node.encode(), everyone, everyone)


async def test_only_the_own_partition_with_its_history(broker: DevBroker, prefix: str) -> None:
    await topics(broker, prefix)
    topic = full_name(prefix, "commands")
    other = next(n for n in ("a", "b", "c", "d") if partition_of(n, 3) != partition_of("n1", 3))
    await send(broker, topic, (b"n1", b"1"), (other.encode(), b"x"), (b"n1", b"bad"), (b"n1", b"2"))
    reader, got = a_reader(broker, topic, "n1", 60_000)
    async with running(reader):
        await until(lambda: got == [b"1", b"2"], 20, "history of the own partition")
        await send(broker, topic, (other.encode(), b"y"), (b"n1", b"3"))
        await until(lambda: got == [b"1", b"2", b"3"], 20, "a new record")
    assert reader.refused == {"broken_json": 1}


async def test_history_is_measured_from_the_last_record(broker: DevBroker, prefix: str) -> None:
    await topics(broker, prefix)
    topic = full_name(prefix, "commands")
    await send(broker, topic, (b"n1", b"old"))
    await asyncio.sleep(0.3)  # the distance in broker time that the history below cuts
    await send(broker, topic, (b"n1", b"new"))
    reader, got = a_reader(broker, topic, "n1", 150)
    async with running(reader):
        await until(lambda: got == [b"new"], 20, "only the newer record")


async def test_from_the_beginning_of_all_partitions(broker: DevBroker, prefix: str) -> None:
    await topics(broker, prefix)
    topic = full_name(prefix, "inventory")
    await send(broker, topic, *((b"n%d" % i, b"%d" % i) for i in range(9)))
    reader, got = a_reader(broker, topic, None, None)
    async with running(reader):
        await until(lambda: len(got) == 9, 20, "all records")
    assert PARTITIONS > 1


async def test_goes_on_where_it_was_after_the_broker_was_away(tmp_path: Path) -> None:
    own = DevBroker(data=tmp_path / "kafka")
    await asyncio.to_thread(own.start)
    try:
        await topics(own, "t.")
        topic = full_name("t.", "commands")
        reader, got = a_reader(own, topic, "n1", 60_000)
        async with running(reader):
            await send(own, topic, (b"n1", b"1"))
            await until(lambda: got == [b"1"], 30, "the first record")
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.start)
            await send(own, topic, (b"n1", b"2"))
            await until(lambda: got[-1:] == [b"2"], 40, "the record after the crash")
        assert got == [b"1", b"2"]
    finally:
        await asyncio.to_thread(own.close)
