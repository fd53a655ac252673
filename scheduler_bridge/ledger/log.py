"""Writes the ``ledger`` topic for the bridge that reigns. Used by `scheduler_bridge.ledger.keeper`.

Nothing that was written counts before it has been read back: the book is folded from the log alone.
The producer is idempotent and keeps the order of a partition; each record goes to the partition of
its node.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner

from schemas import codec, ledger
from schemas.topics import full_name

log = logging.getLogger("slackwater.bridge")
LONGEST_WAIT_S = 10.0
_BY_KEY = DefaultPartitioner()


def partition_of(key: bytes, partitions: int) -> int:
    """Of the node that a key names."""
    every = list(range(partitions))
    return int(_BY_KEY(ledger.home(key), every, every))


class LedgerLog:
    """`start` waits for a broker for ever; `write` returns once all is on the log."""

    def __init__(self, brokers: str, prefix: str) -> None:
        self._brokers = brokers
        self._topic = full_name(prefix, "ledger")
        self._producer: Any = None
        self.partitions = 0

    async def start(self) -> None:
        wait_s = 0.2
        while True:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._brokers,
                acks="all",
                enable_idempotence=True,
                client_id="slackwater-bridge-ledger",
            )
            try:
                await producer.start()
                self.partitions = len(await producer.partitions_for(self._topic))
            except (KafkaError, OSError) as error:
                await producer.stop()
                log.warning("ledger is not written yet: %s; trying again in %.1f s", error, wait_s)
            except BaseException:
                await producer.stop()
                raise
            else:
                self._producer = producer
                return
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    async def write(self, records: list[tuple[bytes, Any]]) -> dict[str, int]:
        """Key and record (None: a tombstone), in order; the last offset of each node.

        Raises KafkaError: some of them may be lost, and some may still come.
        """
        sending = []
        for key, record in records:
            raw = None if record is None else codec.encode(record)
            sending.append(await self._send(key, raw, partition_of(key, self.partitions)))
        written = await asyncio.gather(*sending)
        nodes = (ledger.home(key).decode() for key, _ in records)
        return {node: done.offset for node, done in zip(nodes, written, strict=True)}

    async def reign(self, partition: int, record: Any) -> None:
        """Say in one partition who reigns from there on. Raises KafkaError."""
        await (await self._send(ledger.REIGN_KEY, codec.encode(record), partition))

    async def stop(self) -> None:
        if self._producer is not None:
            await self._producer.stop()

    async def _send(self, key: bytes, raw: bytes | None, partition: int) -> Any:
        headers = codec.JSON_HEADERS if raw is not None else None
        return await self._producer.send(
            self._topic, raw, key=key, partition=partition, headers=headers
        )
