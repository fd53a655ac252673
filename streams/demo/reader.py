"""Follows the topics for the demo's board: one consumer without a group, from the beginning.

Called by `run`. A broker that is away is waited for; what cannot be read is counted, not fatal:
the workers dead-letter it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiokafka
from aiokafka.errors import KafkaError

from schemas import codec
from schemas.errors import BadRecord
from schemas.topics import full_name
from streams.demo.board import Board

SHOWN = (
    "samples",
    "inventory",
    "capacity",
    "reservations",
    "commands",
    "acks",
    "ledger",
    "jobs",
    "dead-letters",
    "fleet",
    "policies",
)
POLL_MS = 250
FETCH_BYTES = 1 << 18
EVERY = 3  # of the samples of a node that is not watched one in three is enough for a rate
RETRY_S = 0.5


class Reader:
    """Fills a `Board`; whoever wants to know looks at the board."""

    def __init__(self, brokers: str, prefix: str, board: Board) -> None:
        self._brokers = brokers
        self._topics = {full_name(prefix, name): name for name in SHOWN}
        self._board = board
        self._task: asyncio.Task[None] | None = None
        self._passed: dict[bytes, int] = {}
        self._offsets: dict[aiokafka.TopicPartition, int] = {}

    def start(self) -> None:
        """Begin to follow, in the background."""
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """End following; whatever was polled is on the board."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _follow(self) -> None:
        while True:
            # Without a group a consumer is given all partitions of its topics when it starts.
            consumer = aiokafka.AIOKafkaConsumer(
                *self._topics,
                bootstrap_servers=self._brokers,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                # By default each record is fetched as it comes, a hundred partitions named in
                # every request: dear for reader and broker. A few times a second is enough.
                fetch_min_bytes=FETCH_BYTES,
                fetch_max_wait_ms=POLL_MS,
            )
            try:
                await consumer.start()
                for at in consumer.assignment():
                    consumer.seek(at, self._offsets.get(at, 0))
                await self._poll(consumer)
            except (KafkaError, OSError):
                await asyncio.sleep(RETRY_S)  # the broker is away: the outage is part of the show
            finally:
                with contextlib.suppress(KafkaError, OSError):
                    await consumer.stop()

    async def _poll(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        while True:
            polled = await consumer.getmany(timeout_ms=POLL_MS)
            for at, messages in polled.items():
                name = self._topics[at.topic]
                for message in messages:
                    self._take(name, message)
                self._offsets[at] = messages[-1].offset + 1

    def _due(self, key: bytes | None) -> bool:
        """Whether a sample is looked at; to read a whole fleet costs as much as to fold it."""
        if key is None or key.decode(errors="replace") == self._board.watched:
            return key is not None
        self._passed[key] = self._passed.get(key, -1) + 1
        return self._passed[key] % EVERY == 0

    def _take(self, name: str, message: Any) -> None:
        """A tombstone, a tick and what belongs to no node are not shown."""
        if message.value is None or (name == "samples" and not self._due(message.key)):
            return
        try:
            record = codec.read(name, message.key, message.value, message.headers)
        except BadRecord:
            self._board.undecodable += 1
            return
        self._board.take(record)
