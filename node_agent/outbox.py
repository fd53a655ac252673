"""What waits to be sent, bounded, and the one producer that sends it.

`node_agent.loop` puts samples, acks and inventories in; nothing here makes it wait. When the spool
is full the oldest samples go and are counted; an ack goes only when no sample is left. Each
acknowledged record tells broker time (`lease.BrokerClock`). Records may be sent twice after an
error: readers know them by (boot, seq).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.structs import RecordMetadata

from schemas.codec import Headers
from schemas.ledger import home

MAX_BYTES = 8 << 20
MAX_PARCELS = 4096
AT_ONCE = 64
LINGER_MS = 5
REQUEST_TIMEOUT_MS = 10_000
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
STOP_S = 2.0
_BY_KEY = DefaultPartitioner()
APPEND_TIME = 1  # the timestamp type of a topic whose broker stamps records

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parcel:
    """One record to send; ``is_sample`` may be dropped first."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers
    is_sample: bool


class Spool:
    """Two queues under one bound of bytes and count: samples, and all that matters more."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_parcels: int = MAX_PARCELS) -> None:
        self.samples_dropped = 0
        self.others_dropped = 0
        self.size_bytes = 0
        self._max_bytes, self._max_parcels = max_bytes, max_parcels
        self._samples: deque[Parcel] = deque()
        self._others: deque[Parcel] = deque()

    def __len__(self) -> int:
        return len(self._samples) + len(self._others)

    def put(self, parcel: Parcel) -> None:
        """At the end; the oldest samples, then the oldest others make room."""
        self._queue_of(parcel).append(parcel)
        self.size_bytes += len(parcel.value)
        self._make_room()

    def take(self, count: int) -> list[Parcel]:
        """Up to ``count`` parcels in order, acks before samples."""
        taken: list[Parcel] = []
        for queue in (self._others, self._samples):
            while queue and len(taken) < count:
                taken.append(queue.popleft())
        self.size_bytes -= sum(len(parcel.value) for parcel in taken)
        return taken

    def give_back(self, parcels: Sequence[Parcel]) -> None:
        """What could not be sent, to the front, in its order."""
        for parcel in reversed(parcels):
            self._queue_of(parcel).appendleft(parcel)
            self.size_bytes += len(parcel.value)
        self._make_room()

    def _queue_of(self, parcel: Parcel) -> deque[Parcel]:
        return self._samples if parcel.is_sample else self._others

    def _make_room(self) -> None:
        while len(self) > self._max_parcels or self.size_bytes > self._max_bytes:
            if self._samples:
                self.samples_dropped += 1
                gone = self._samples.popleft()
            else:
                self.others_dropped += 1
                gone = self._others.popleft()
            self.size_bytes -= len(gone.value)


class Outbox:
    """The spool and its sender. ``connected`` is for metrics."""

    def __init__(
        self,
        brokers: str,
        client_id: str,
        mono_us: Callable[[], int],
        acknowledged: Callable[[int, int], None],
        spool: Spool | None = None,
        at_once: int = AT_ONCE,
    ) -> None:
        """``acknowledged(append_ms, sent_mono_us)`` is called for each record stamped.

        ``at_once``: records on their way together; one node needs few, a simulated fleet many.
        """
        self._at_once = at_once
        self.spool = Spool() if spool is None else spool
        self.connected = False
        self.sent = 0
        self.too_large = 0
        self._brokers, self._client_id = brokers, client_id
        self._mono_us, self._acknowledged = mono_us, acknowledged
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()

    def put(self, parcel: Parcel) -> None:
        """Queue it; returns at once, whatever the broker does."""
        self.spool.put(parcel)
        self._filled.set()
        self._empty.clear()

    async def run(self) -> None:
        """Send for ever; a broker that is away is tried again with growing pauses."""
        failures = 0
        while True:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._brokers,
                client_id=self._client_id,
                acks="all",
                enable_idempotence=True,
                partitioner=at_home,
                linger_ms=LINGER_MS,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            )
            try:
                await producer.start()
                self.connected, failures = True, 0
                await self._send(producer)
            except (KafkaError, OSError) as error:
                log.warning("broker %s: %s; sampling goes on", self._brokers, error)
            finally:
                self.connected = False
                await stop_client(producer)
            await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1

    async def drained(self, timeout_s: float) -> bool:
        """Wait until all is sent and acknowledged, at most so long."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def _send(self, producer: AIOKafkaProducer) -> None:
        """Batch after batch; raises what the client raises, with the batch given back."""
        while True:
            if not self.spool:
                self._empty.set()
            await self._filled.wait()
            parcels = self.spool.take(self._at_once)
            if not parcels:
                self._filled.clear()
                continue
            await self._send_batch(producer, parcels)

    async def _send_batch(self, producer: AIOKafkaProducer, parcels: list[Parcel]) -> None:
        left = parcels
        try:
            sent_mono_us = self._mono_us()
            futures = [await self._hand_over(producer, parcel) for parcel in parcels]
            done = await asyncio.gather(*futures, return_exceptions=True)
            outcomes = list(zip(parcels, done, strict=True))
            left = [parcel for parcel, each in outcomes if isinstance(each, BaseException)]
            for each in done:
                if isinstance(each, RecordMetadata):
                    self.sent += 1
                    if each.timestamp_type == APPEND_TIME:
                        self._acknowledged(each.timestamp, sent_mono_us)
            for each in done:
                if isinstance(each, BaseException):
                    raise each
        finally:
            self.spool.give_back(left)

    async def _hand_over(
        self, producer: AIOKafkaProducer, parcel: Parcel
    ) -> asyncio.Future[RecordMetadata | None]:
        """Into the client's buffer. A record that no broker would take is dropped and counted."""
        try:
            sending: asyncio.Future[RecordMetadata | None] = await producer.send(
                parcel.topic, parcel.value, key=parcel.key, headers=parcel.headers
            )
        except MessageSizeTooLargeError as error:
            self.too_large += 1
            log.error("%s: %d bytes dropped: %s", parcel.topic, len(parcel.value), error)  # noqa: TRY400
            sending = asyncio.get_running_loop().create_future()
            sending.set_result(None)
        return sending


def at_home(key: bytes, every: list[int], available: list[int]) -> int:
    """The partition of the node that a key names, also where more follows its name."""
    return int(_BY_KEY(home(key), every, available))


async def stop_client(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Stop, but not for longer than a moment and whatever it raises.

    A client whose broker is away waits for ever, or ends with the cancellation of a task of its
    own, which must not look like a cancellation of ours.
    """
    task = asyncio.ensure_future(client.stop())
    done, _ = await asyncio.wait({task}, timeout=STOP_S)
    if not done:
        task.cancel()
    elif task.cancelled() or task.exception() is not None:
        log.debug("a client did not stop in order: %r", task)
