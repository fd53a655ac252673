"""A bridge with a ledger, a ResourceManager and a real topic: what the tests on a broker share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from scheduler_bridge.ledger.log import partition_of
from scheduler_bridge.ledger.setup import LedgerSettings, attach
from scheduler_bridge.loop import Bridge
from scheduler_bridge.reconcile import Amount
from scheduler_bridge.settings import (
    CPU_NAME,
    MEMORY_NAME,
    MID_CPU_NAME,
    MID_MEMORY_NAME,
    Settings,
)
from scheduler_bridge.sinks.dry_run import DryRun
from schemas import codec, ledger
from schemas.ledger_records import LedgerClaim
from schemas.records import Capacity, Cause
from tests.scheduler_bridge.ledger.checker import Said
from tests.scheduler_bridge.yarn_server import YarnServer
from tests.support import patient

PARTITIONS = 3
GIB = 1 << 30
NAMES = (CPU_NAME, MEMORY_NAME, MID_CPU_NAME, MID_MEMORY_NAME)


class Topics:
    """Writes capacity and claims as their owners would; reads the ledger as anyone may."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap, self.prefix = bootstrap, prefix
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        self._offset = 0

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def capacity(self, node: str, amount: Amount, *, new_work: bool = True) -> None:
        self._offset += 1
        record = Capacity(
            node, Cause(1, 0, self._offset, self._offset, "p", 1), amount.cpu_milli,
            amount.memory_bytes, "usage", new_work,
        )  # fmt: skip
        await self._producer.send_and_wait(
            self.prefix + "capacity", codec.encode(record), key=node.encode(),
            headers=codec.JSON_HEADERS,
        )  # fmt: skip

    async def claim(
        self, node: str, claim: str, amount: Amount | None, ttl_ms: int = 60_000
    ) -> None:
        """Of the scheduler ``slurm``; None gives it back."""
        key = ledger.claim_key(node, "slurm", claim)
        raw = None
        if amount is not None:
            record = LedgerClaim(
                node, "slurm", claim, ttl_ms, amount.cpu_milli, amount.memory_bytes
            )
            raw = codec.encode(record)
        await self._producer.send_and_wait(
            self.prefix + "ledger", raw, key=key, partition=partition_of(key, PARTITIONS),
            headers=codec.JSON_HEADERS,
        )  # fmt: skip

    def bridge(
        self, record: Path, yarn: YarnServer, learn_ms: int = 1_000
    ) -> tuple[Bridge, DryRun]:
        """One that was not begun yet, and its sink, to be closed."""
        sink = DryRun(record, lambda _line: None, CPU_NAME, MEMORY_NAME, fsync="never")
        bridge = Bridge(Settings(self.bootstrap, self.prefix, metrics_port=None), sink)
        settings = LedgerSettings(yarn=(yarn.url,), yarn_name="yarn", learn_ms=learn_ms, look_s=0.2)
        attach(bridge, settings, NAMES)
        return bridge, sink

    async def ledger(self) -> list[Said]:
        """The whole topic, partition by partition."""
        topic = self.prefix + "ledger"
        parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, enable_auto_commit=False)
        await consumer.start()
        found: list[Said] = []
        try:
            consumer.assign(parts)
            await consumer.seek_to_beginning(*parts)
            ends = await consumer.end_offsets(parts)
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    found += [
                        Said(tp.partition, one.offset, one.timestamp, one.key, one.value)
                        for one in records
                    ]
        finally:
            await consumer.stop()
        return sorted(found, key=lambda one: (one.partition, one.offset))


@asynccontextmanager
async def bridge_of(
    topics: Topics, record: Path, yarn: YarnServer, learn_ms: int = 1_000
) -> AsyncIterator[Bridge]:
    """A bridge whose sink is dry and whose borrower is YARN; ends like one that was stopped."""
    bridge, sink = topics.bridge(record, yarn, learn_ms)
    task = asyncio.create_task(bridge.run())
    try:
        yield bridge
        assert not task.done(), task
    finally:
        bridge.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        sink.close()


async def until(check: Callable[[], object], what: str, within_s: float = 10.0) -> float:
    """Wait until it is so; how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not check():
        assert loop.time() - began < patient(within_s), f"not within {within_s} s: {what}"
        await asyncio.sleep(0.02)
    return loop.time() - began
