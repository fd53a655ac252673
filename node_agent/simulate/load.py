"""The load generator: samples of a whole fleet at a set rate, or as fast as one process can.

Called by `node_agent.simulate.cli` when a rate is given, and by benchmarks. No node obeys and no
job ends here: every slot is taken, inventory is published once, and then samples go out in batches
for each partition, encoded by `node_agent.simulate.wire`. A node's period is nodes / rate (or
``--period`` without pace), and its monotonic clock follows it exactly, so the same seed gives the
same samples, boots included: a second run on the same topics needs another seed, or readers take it
for a repetition.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError

from node_agent.authentic import Authentic
from node_agent.inbox import partition_of
from node_agent.simulate import trace as traces
from node_agent.simulate.fleet import MIB, build
from node_agent.simulate.scheduler import Task
from node_agent.simulate.settings import Settings
from node_agent.simulate.summary import Summary
from node_agent.simulate.world import World
from schemas import codec
from schemas.codec import Headers
from schemas.records import Inventory
from schemas.topics import full_name

CHUNKS_A_S = 20
LARGEST_CHUNK = 500
BATCH_BYTES = 512 * 1024
IN_FLIGHT = 200  # batches on their way, at most
METADATA_S = 10.0
ENDLESS_US = 1 << 60
WANT_MILLI, MEMORY_BYTES = 1500, 512 * MIB
CLOCK_US = 1_000_000_000  # monotonic time of every node at the start


class Load:
    """One producer, one fleet. ``counts`` are in the summary."""

    def __init__(self, settings: Settings) -> None:
        """Raises ValueError for a fleet that cannot be."""
        self.settings = settings
        trace = traces.load(settings.trace)
        fleet = build(
            settings.nodes, settings.pods, settings.seed, trace.mean.shape[0], settings.node_prefix
        )
        rate = settings.rate or 0
        period_ms = max(1, settings.nodes * 1000 // rate) if rate else settings.period_ms
        self.world = World(fleet, trace, settings.seed, period_ms, scheduling=False)
        self.period_ms = period_ms
        self.chunk = max(1, min(LARGEST_CHUNK, settings.nodes, rate // CHUNKS_A_S or LARGEST_CHUNK))
        self.summary = Summary(settings.nodes, settings.pods, settings.seed, settings.trace)
        self._keys = self.world.sampler.keys
        self._partitions: list[int] = []
        self._flying: set[asyncio.Future[Any]] = set()
        self._cpu_s = 0.0
        self._stopped = False
        self._authentic = Authentic(
            settings.keys, settings.prefix, lambda: time.monotonic_ns() // 1000
        )
        self._error: BaseException | None = None
        for row in range(settings.nodes):
            for slot in range(fleet.batch_slots):
                self.world.model.place(row, slot, WANT_MILLI, ENDLESS_US, MEMORY_BYTES)

    def stop(self) -> None:
        """End after the chunk at hand."""
        self._stopped = True

    async def run(self) -> Summary:
        """Inventory, then samples until ``total``, ``for_s`` or `stop`. Raises KafkaError."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.settings.brokers,
            client_id=f"slackwater-load-{self.settings.node_prefix}",
            acks="all",
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            linger_ms=0,
        )
        try:
            topic = full_name(self.settings.prefix, "samples")
            count = await self._connected(producer, topic)
            self._partitions = [partition_of(name, count) for name in self.world.fleet.names]
            await self._publish_inventory(producer)
            await self._publish_samples(producer, topic)
            await self._landed(0)
        finally:
            await producer.stop()
        return self.summary

    async def _connected(self, producer: Any, topic: str) -> int:
        """Start the producer; how many partitions the topic has. Raises ConnectionError."""
        brokers = self.settings.brokers
        try:
            await producer.start()
            return len(await asyncio.wait_for(producer.partitions_for(topic), METADATA_S))
        except KafkaConnectionError as error:
            raise ConnectionError(f"no broker answers at {brokers}: {error}") from None
        except (TimeoutError, UnknownTopicOrPartitionError):
            raise ConnectionError(
                f"no topic {topic} at {brokers}; make them with `slackwater topics create`"
            ) from None

    async def _publish_inventory(self, producer: Any) -> None:
        """Who the nodes are, all acknowledged before the first sample."""
        topic = full_name(self.settings.prefix, "inventory")
        futures = []
        for row, key in enumerate(self._keys):
            raw = codec.encode(self._inventory(row))
            headers = self._signed("inventory", row, codec.JSON_HEADERS, raw)
            futures.append(await producer.send(topic, raw, key=key, headers=headers))
        for future in futures:
            await future

    def _inventory(self, row: int) -> Inventory:
        """The node with all its slots taken."""
        fleet = self.world.fleet
        tasks = (
            Task(f"{fleet.names[row]}-load-{slot:03}", WANT_MILLI, MEMORY_BYTES, WANT_MILLI, 1)
            for slot in range(fleet.batch_slots)
        )
        batch = tuple(task.fact(terminating=False) for task in tasks)
        return replace(self.world.inventory(row), pods=(*fleet.online_facts(row), *batch))

    async def _publish_samples(self, producer: Any, topic: str) -> None:
        nodes, pace = self.settings.nodes, self.settings.rate or 0
        self._cpu_s = time.process_time()
        started = time.monotonic()
        at = turn = 0
        while not self._over(started):
            rows = slice(at, min(at + self.chunk, nodes))
            if self.settings.total is not None:
                left = self.settings.total - self.summary.samples
                rows = slice(at, min(rows.stop, at + left))
            now_us = CLOCK_US + turn * self.period_ms * 1000 + at * self.period_ms * 1000 // nodes
            await self._send(producer, topic, rows, now_us)
            if self._error is not None:
                raise self._error
            at = rows.stop
            if at >= nodes:
                at, turn = 0, turn + 1
            if pace:
                behind = started + self.summary.samples / pace - time.monotonic()
                await asyncio.sleep(max(0.0, behind))
        self._count(started)

    async def _send(self, producer: Any, topic: str, rows: slice, now_us: int) -> None:
        """Model, encode, and one batch for each partition."""
        self.world.step(rows, now_us, (now_us - CLOCK_US) / 1e6 * self.settings.speed)
        raws = self.world.sampler.sample(rows, now_us, now_us // 1000)
        batches: dict[int, Any] = {}
        for row, raw in enumerate(raws, start=rows.start):
            partition = self._partitions[row]
            batch = batches.get(partition)
            if batch is None:
                batch = batches[partition] = producer.create_batch()
            if not self._append(batch, row, raw):
                await self._fly(producer, topic, partition, batch)
                batch = batches[partition] = producer.create_batch()
                assert self._append(batch, row, raw), "a sample is larger than a batch"
        for partition, batch in batches.items():
            await self._fly(producer, topic, partition, batch)
        self.summary.samples += len(raws)
        self.summary.sample_bytes += sum(len(raw) for raw in raws)

    def _append(self, batch: Any, row: int, raw: bytes) -> bool:
        headers = self._signed("samples", row, codec.PACKED_HEADERS, raw)
        said = batch.append(timestamp=None, key=self._keys[row], value=raw, headers=headers)
        return said is not None

    def _signed(self, topic: str, row: int, headers: Headers, raw: bytes) -> Headers:
        return self._authentic.headers(topic, self.world.fleet.names[row], headers, raw)

    async def _fly(self, producer: Any, topic: str, partition: int, batch: Any) -> None:
        future = await producer.send_batch(batch, topic, partition=partition)
        self._flying.add(future)
        future.add_done_callback(self._land)
        await self._landed(IN_FLIGHT)

    async def _landed(self, most: int) -> None:
        """Wait until at most ``most`` batches are on their way."""
        while len(self._flying) > most:
            await asyncio.wait(set(self._flying), return_when=asyncio.FIRST_COMPLETED)
        if self._error is not None:
            raise self._error

    def _land(self, future: asyncio.Future[Any]) -> None:
        self._flying.discard(future)
        if not future.cancelled() and future.exception() is not None:
            self._error = self._error or future.exception()

    def _over(self, started: float) -> bool:
        self._count(started)
        done = self.settings.total is not None and self.summary.samples >= self.settings.total
        late = self.settings.for_s is not None and self.summary.seconds >= self.settings.for_s
        return self._stopped or done or late

    def _count(self, started: float) -> None:
        summary = self.summary
        summary.seconds = time.monotonic() - started
        summary.samples_per_s = summary.samples / max(summary.seconds, 1e-9)
        summary.cores = (time.process_time() - self._cpu_s) / max(summary.seconds, 1e-9)


def _mono_us() -> int:
    return time.monotonic_ns() // 1000
