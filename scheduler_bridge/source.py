"""Reads every partition of some topics without a group, from the beginning or from a time on.

The loop (``capacity`` and ``ledger``) and the evictor (topics of its own) have one each and ask it
for records; a broker that is away is waited for, never an end of the process.
Undecodable records become dead letters, written by a producer that is only started for the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from schemas import codec
from schemas.records import DeadLetter
from schemas.topics import full_name

log = logging.getLogger("slackwater.bridge")
TOPICS = ("capacity", "ledger")
HEAD_BYTES = 64
LETTERS_WAITING = 1000


class Source:
    """A groupless consumer; `caught_up` once the ends seen at the start are passed.

    ``since_s``: topics of which only what is younger by the broker's clock is read.
    """

    def __init__(
        self,
        brokers: str,
        prefix: str,
        retry_max_s: float,
        topics: Iterable[str] = TOPICS,
        since_s: Mapping[str, int] | None = None,
    ) -> None:
        self._brokers = brokers
        self._retry_max_s = retry_max_s
        self._names = {full_name(prefix, topic): topic for topic in topics}
        self._since_s = {full_name(prefix, topic): s for topic, s in (since_s or {}).items()}
        self._letters_to = full_name(prefix, "dead-letters")
        self._consumer: Any = None
        self._ends: dict[Any, int] = {}
        self._at: dict[Any, int] = {}
        self._letters: asyncio.Queue[DeadLetter] = asyncio.Queue(LETTERS_WAITING)
        self._letter: DeadLetter | None = None

    @property
    def caught_up(self) -> bool:
        return bool(self._ends) and all(self._at[tp] >= end for tp, end in self._ends.items())

    @property
    def lag(self) -> int:
        """Records between what is read and the newest end known; 0 without a broker yet."""
        if self._consumer is None:
            return 0
        ends = ((self._consumer.highwater(tp), at) for tp, at in self._at.items())
        return sum(max(0, end - at) for end, at in ends if end is not None)

    async def start(self) -> None:
        """Connect and go to the beginning of every partition, however long that takes."""
        wait_s = 0.2
        while True:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._brokers,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=200,
            )
            try:
                await consumer.start()
                await self._assign(consumer)
            except (KafkaError, OSError) as error:
                await consumer.stop()
                log.warning("not reading yet: %s; trying again in %.1f s", error, wait_s)
            except BaseException:
                await consumer.stop()
                raise
            else:
                self._consumer = consumer
                return
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, self._retry_max_s)

    async def records(self, timeout_ms: int) -> Iterator[tuple[str, Any]]:
        """(short topic name, record) of whatever has arrived within ``timeout_ms``."""
        try:
            fetched = await self._consumer.getmany(timeout_ms=timeout_ms)
        except KafkaError as error:
            log.warning("reading failed: %s; going on", error)
            await asyncio.sleep(timeout_ms / 1000)
            return iter(())
        for tp in self._ends:
            self._at[tp] = max(self._at[tp], await self._position(tp, fetched.get(tp)))
        return ((self._names[tp.topic], record) for tp, some in fetched.items() for record in some)

    def dead_letter(self, record: Any, reason: str, detail: str) -> None:
        """Queue a dead letter; when the queue is full it is only counted by the caller's metric."""
        raw = record.value or b""
        letter = DeadLetter(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            reason=reason,
            detail=detail[:500],
            key_hex=(record.key or b"")[:HEAD_BYTES].hex(),
            head_hex=raw[:HEAD_BYTES].hex(),
            size_bytes=len(raw),
        )
        with contextlib.suppress(asyncio.QueueFull):
            self._letters.put_nowait(letter)

    async def write_letters(self) -> None:
        """Dead letters go out when they can; a broker that refuses them stops nothing.

        Runs until cancelled.
        """
        while True:
            try:
                await self._write_letters()
            except Exception as error:  # noqa: BLE001 - whatever the client raises: wait, go on
                log.warning("dead letters wait: %s", error)
                await asyncio.sleep(self._retry_max_s)

    async def _write_letters(self) -> None:
        """Publish dead letters as they come; the one that could not go out is the next again."""
        letter = await self._next_letter()
        producer = AIOKafkaProducer(bootstrap_servers=self._brokers, enable_idempotence=True)
        await producer.start()
        try:
            while True:
                await producer.send_and_wait(
                    self._letters_to,
                    codec.encode(letter),
                    key=letter.topic.encode(),
                    headers=codec.JSON_HEADERS,
                )
                self._letter = None
                letter = await self._next_letter()
        finally:
            await producer.stop()

    async def _next_letter(self) -> DeadLetter:
        if self._letter is None:
            self._letter = await self._letters.get()
        return self._letter

    async def stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def _assign(self, consumer: Any) -> None:
        parts = await self._partitions()
        consumer.assign(parts)
        await consumer.seek_to_beginning(*parts)
        self._ends = await consumer.end_offsets(parts)
        self._at = dict.fromkeys(parts, 0)
        now_ms = time.time_ns() // 1_000_000
        young = {
            tp: now_ms - self._since_s[tp.topic] * 1000 for tp in parts if tp.topic in self._since_s
        }
        for tp, found in (await consumer.offsets_for_times(young) if young else {}).items():
            self._at[tp] = self._ends[tp] if found is None else found.offset
            consumer.seek(tp, self._at[tp])

    async def _partitions(self) -> list[TopicPartition]:
        """Every partition of our topics. Raises KafkaError when one is not there."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._brokers)
        try:
            await admin.start()
            described = await admin.describe_topics(list(self._names))
        finally:
            await admin.close()
        parts = [
            TopicPartition(topic["topic"], part["partition"])
            for topic in described
            for part in topic["partitions"]
        ]
        missing = self._names.keys() - {tp.topic for tp in parts}
        if missing:
            raise KafkaError(
                f"no topic {', '.join(sorted(missing))}; make them with `slackwater topics create`"
            )
        return sorted(parts)

    async def _position(self, tp: Any, fetched: Any) -> int:
        """The next offset of a partition: a compacted or empty one may begin beyond 0."""
        if fetched:
            return int(fetched[-1].offset) + 1
        if self._at[tp] >= self._ends[tp]:
            return self._at[tp]
        return int(await self._consumer.position(tp))
