"""Publishing what `step` said: one idempotent producer, bounded, with a record of what is unacked.

Used by `streams.engine` (outputs, dead letters), by the ticker (ticks) and before every image
(`settle`). A command that has expired by broker time is withheld here and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from agents.log import Output
from schemas import codec, signing, topics
from schemas.records import Command, Tick
from schemas.signing import WorkerSigner
from streams.log_clock import LogClock
from streams.metrics import Metrics
from streams.settings import WorkerSettings

log = logging.getLogger(__name__)

LINGER_MS = 5
BATCH_BYTES = 128 * 1024
STOP_S = 1.0
RETRY_S = 1.0
_SIGNED = signing.WORKER_SAYS | signing.AUDITED | {"samples"}  # of the last, ticks


class OutputFailed(Exception):
    """Kafka did not take an output: its partition must be folded again from its image."""


class Outputs:
    """All that a worker publishes except images."""

    def __init__(
        self,
        settings: WorkerSettings,
        clock: LogClock,
        metrics: Metrics,
        signer: WorkerSigner | None = None,
    ) -> None:
        """``signer`` signs ticks, commands, leases and decisions; None: nothing is signed."""
        self._settings = settings
        self._signer = signer
        self._clock = clock
        self._metrics = metrics
        self._producer: AIOKafkaProducer | None = None
        self._unacked: dict[int, set[asyncio.Future[Any]]] = defaultdict(set)
        self._failed: dict[int, BaseException] = {}
        self._inflight = 0
        self._room = asyncio.Event()
        self._room.set()
        self._renewing = asyncio.Lock()
        self._refused = False
        self._ready = asyncio.Event()

    async def start(self) -> None:
        """Connect. Raises KafkaError."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._settings.brokers,
            enable_idempotence=True,
            acks="all",
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
            request_timeout_ms=int(self._settings.request_timeout_s * 1000),
        )
        try:
            await producer.start()
        except KafkaError:
            await producer.stop()
            raise
        self._producer = producer
        self._refused = False
        self._ready.set()

    async def stop(self) -> None:
        """Flush and disconnect."""
        self._ready.clear()
        if self._producer is not None:
            await self._producer.stop()
            self._producer = None

    async def renew(self) -> None:
        """A new producer after a refusal; does nothing when another caller has renewed it.

        An idempotent producer may not go on after it gave a batch up: the broker would refuse all
        that follows. What the old one still had is counted as refused. Waits for the broker.
        """
        async with self._renewing:
            if not self._refused:
                return
            self._ready.clear()
            old, self._producer = self._producer, None
            if old is not None:
                try:
                    await asyncio.wait_for(old.stop(), STOP_S)
                except (KafkaError, TimeoutError) as error:
                    log.warning("the producer that was refused did not stop in order: %r", error)
            for future in [one for waiting in self._unacked.values() for one in waiting]:
                future.cancel()
            while True:
                try:
                    await self.start()
                except KafkaError as error:
                    log.warning("no new producer yet: %r", error)
                    await asyncio.sleep(RETRY_S)
                else:
                    return

    async def publish(self, partition: int, outputs: Iterable[Output]) -> None:
        """Hand outputs of one partition to the producer, in order; waits while too many are out.

        Raises OutputFailed when an earlier one was refused.
        """
        for output in outputs:
            await self._room.wait()
            if partition in self._failed:
                raise OutputFailed(str(self._failed[partition]))
            if self._expired(output):
                self._metrics.add("commands_expired_total")
                continue
            table = topics.BY_NAME[output.topic]
            if output.topic == "dead-letters":
                self._metrics.add("dead_letters_total", output.record.topic, output.record.reason)
            value = None if output.record is None else codec.encode(output.record)
            future = await self._send(
                output.topic,
                output.key or None,
                value,
                partition if table.partitioned else 0,
                codec.JSON_HEADERS,
            )
            self._track(partition, output.topic, future)

    async def tick(self, tick: Tick) -> None:
        """Write a tick into its partition; returns when Kafka has it, and tells the clock.

        Raises OutputFailed; then there is a new producer for the next one.
        """
        try:
            future = await self._send(
                "samples", None, codec.encode(tick), tick.partition, codec.TICK_HEADERS
            )
            appended = await future
        except KafkaError as error:
            self._refused = True
            await self.renew()
            raise OutputFailed(repr(error)) from error
        self._clock.saw(appended.timestamp, monotonic())

    def unacked(self, partition: int) -> Sequence[asyncio.Future[Any]]:
        """The outputs of a partition that Kafka has not acknowledged yet."""
        return tuple(self._unacked[partition])

    async def settle(self, partition: int, futures: Sequence[asyncio.Future[Any]]) -> None:
        """Wait until these are acknowledged. Raises OutputFailed."""
        if futures:
            await asyncio.wait(futures)
        if partition in self._failed:
            raise OutputFailed(str(self._failed[partition]))

    def forget(self, partition: int) -> None:
        """The partition begins again from an image, or was given away."""
        self._unacked.pop(partition, None)
        self._failed.pop(partition, None)

    def failed(self, partition: int) -> bool:
        """Whether an output of this partition was refused."""
        return partition in self._failed

    async def _send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        headers: codec.Headers,
    ) -> asyncio.Future[Any]:
        await self._ready.wait()
        if self._producer is None:
            raise OutputFailed("stopped")
        name = self._settings.topic(topic)
        if self._signer is not None and topic in _SIGNED:
            headers = self._signer.sign(name, key, headers, value)
        try:
            future: asyncio.Future[Any] = await self._producer.send(
                name,
                value=value,
                key=key,
                partition=partition,
                headers=headers,
            )
        except KafkaError as error:
            self._refused = True
            raise OutputFailed(repr(error)) from error
        return future

    def _track(self, partition: int, topic: str, future: asyncio.Future[Any]) -> None:
        waiting = self._unacked[partition]
        waiting.add(future)
        self._inflight += 1
        if self._inflight >= self._settings.inflight_outputs:
            self._room.clear()

        def done(future: asyncio.Future[Any]) -> None:
            waiting.discard(future)
            self._inflight -= 1
            if self._inflight < self._settings.inflight_outputs:
                self._room.set()
            self._metrics.put("outputs_inflight", value=self._inflight)
            if future.cancelled() or future.exception() is not None:
                self._metrics.add("outputs_failed_total", topic)
                self._refused = True
                if self._unacked.get(partition) is waiting:
                    error = None if future.cancelled() else future.exception()
                    self._failed[partition] = error or OutputFailed("cancelled")
            else:
                self._metrics.add("outputs_total", topic)

        future.add_done_callback(done)

    def _expired(self, output: Output) -> bool:
        if not isinstance(output.record, Command):
            return False
        now = self._clock.now_ms(monotonic())
        return now is not None and now >= output.record.expires_log_ms
