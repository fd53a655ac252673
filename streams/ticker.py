"""Writes the ticks: once a period into each partition whose gate is open.

Run by `streams.worker` as one task. The pace is monotonic; partitions are staggered over the
period, so that their decisions do not come at one moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

from aiokafka.errors import KafkaError

from agents.log import LAW_VERSION
from schemas.records import Tick
from streams.metrics import Metrics
from streams.outputs import OutputFailed

log = logging.getLogger(__name__)

LONGEST_NAP_S = 0.1


class Ticker:
    """``periods`` says which partitions want ticks now and how often, in ms."""

    def __init__(
        self,
        incarnation: int,
        partitions: int,
        periods: Callable[[], Mapping[int, int]],
        vector: Callable[[int], dict[str, int]],
        write: Callable[[Tick], Awaitable[None]],
        metrics: Metrics,
    ) -> None:
        self._incarnation = incarnation
        self._partitions = partitions
        self._periods = periods
        self._vector = vector
        self._write = write
        self._metrics = metrics
        self._due: dict[int, float] = {}
        self._writing: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            nap = self.tick_due(monotonic())
            await asyncio.sleep(min(max(nap, 0.001), LONGEST_NAP_S))

    def tick_due(self, now: float) -> float:
        """Start writing what is due at ``now``; returns seconds until the next."""
        periods = self._periods()
        for partition in self._due.keys() - periods.keys():
            del self._due[partition]
        for partition, period_ms in periods.items():
            period = period_ms / 1000
            due = self._due.get(partition)
            if due is None:
                due = self._first(partition, period, now)
            elif due <= now:
                self._start(partition)
                missed = int((now - due) / period)
                if missed:
                    self._metrics.add("ticks_missed_total", partition, by=missed)
                due += period * (missed + 1)
            self._due[partition] = due
        return min(self._due.values(), default=now + LONGEST_NAP_S) - now

    def _first(self, partition: int, period: float, now: float) -> float:
        """At once after the gate opened, then in the partition's own place of the period."""
        self._start(partition)
        place = (partition / self._partitions) * period
        due = now - now % period + place
        while due < now + period / 2:  # a closer one would be merged only
            due += period
        return due

    def _start(self, partition: int) -> None:
        if partition in self._writing:  # the last one is not acknowledged yet: the broker is slow
            self._metrics.add("ticks_missed_total", partition)
            return
        tick = Tick(partition, self._incarnation, LAW_VERSION, self._vector(partition))
        task = asyncio.create_task(self._write_one(tick))
        self._writing[partition] = task

    async def _write_one(self, tick: Tick) -> None:
        try:
            await self._write(tick)
            self._metrics.add("ticks_total", tick.partition)
        except (KafkaError, OutputFailed) as error:
            log.warning("no tick for partition %d: %r", tick.partition, error)
            self._metrics.add("ticks_missed_total", tick.partition)
        finally:
            self._writing.pop(tick.partition, None)
