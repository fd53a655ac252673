"""What became of each pod, on topic `evictions`: kept until the broker has it, in order.

The executor says; `write` runs as a task. What a crash loses here is said again by the next one,
which finds the pod on its way or gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from schemas import codec
from schemas.records import EvictionReport
from schemas.topics import full_name

log = logging.getLogger("slackwater.evictor")
MOST_WAITING = 100_000
RETRY_S = 1.0


class Reports:
    """``dropped`` counts what a broker that was away for too long cost."""

    def __init__(self, brokers: str, prefix: str) -> None:
        self.dropped = 0
        self._brokers = brokers
        self._topic = full_name(prefix, "evictions")
        self._waiting: deque[EvictionReport] = deque()
        self._some = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def say(self, report: EvictionReport) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(report)
        self._none.clear()
        self._some.set()

    async def drained(self, within_s: float) -> None:
        """Wait until all is written, but no longer."""
        try:
            async with asyncio.timeout(within_s):
                await self._none.wait()
        except TimeoutError:
            log.warning("%d reports of evictions are not written", self.waiting)

    async def write(self) -> None:
        """Until cancelled; a broker that is away is waited for."""
        while True:
            try:
                await self._write()
            except (KafkaError, OSError) as error:
                log.warning("reports of evictions wait: %s", error)
                await asyncio.sleep(RETRY_S)

    async def _write(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._brokers, acks="all", enable_idempotence=True
        )
        try:
            await producer.start()
            while True:
                await self._some.wait()
                while self._waiting:
                    report = self._waiting[0]
                    await producer.send_and_wait(
                        self._topic,
                        codec.encode(report),
                        key=report.node.encode(),
                        headers=codec.JSON_HEADERS,
                    )
                    if self._waiting and self._waiting[0] is report:
                        self._waiting.popleft()
                self._some.clear()
                self._none.set()
        finally:
            await producer.stop()
