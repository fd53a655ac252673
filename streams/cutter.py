"""When images are cut, and in which order things happen then.

Run by `streams.worker`. Outputs acknowledged, then the image, then (by `image_at`) the commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic
from uuid import uuid4

from aiokafka.errors import KafkaError

from streams.engine import PartitionEngine
from streams.images import ImageWriter
from streams.metrics import Metrics
from streams.outputs import OutputFailed, Outputs
from streams.settings import WorkerSettings

log = logging.getLogger(__name__)

LOOK_S = 0.25
PLACES = 48  # first cuts lie in so many places of the interval


class Cutter:
    """Cuts one image at a time, each partition once an interval or after so many records."""

    def __init__(
        self, settings: WorkerSettings, metrics: Metrics, outputs: Outputs, writer: ImageWriter
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._outputs = outputs
        self._writer = writer
        self._session = uuid4().hex[:8]
        self._due: dict[int, float] = {}

    async def run(self, engines: Mapping[int, PartitionEngine]) -> None:
        """Cut for ever what is due; ``engines`` changes meanwhile."""
        while True:
            for gone in self._due.keys() - engines.keys():
                del self._due[gone]
            for partition, engine in list(engines.items()):
                if self._is_due(partition, engine):
                    await self.cut(engine)
                    self._due[partition] = monotonic() + self._settings.image_interval_s
            await asyncio.sleep(LOOK_S)

    def _is_due(self, partition: int, engine: PartitionEngine) -> bool:
        interval = self._settings.image_interval_s
        place = 0.5 + (partition % PLACES) / PLACES / 2
        due = self._due.setdefault(partition, monotonic() + interval * place)
        full = engine.since_cut >= self._settings.image_records
        return engine.since_cut > 0 and (full or due <= monotonic())

    async def cut(self, engine: PartitionEngine) -> bool:
        """One image between two records; whether Kafka has it."""
        partition, metrics = engine.partition, self._metrics
        async with engine.lock:
            state = engine.state
            if state is None or engine.broken or engine.mute_until:
                return False
            started = monotonic()
            at = state.at
            meta, arrays = state.to_arrays()
            unacked = self._outputs.unacked(partition)
            engine.since_cut = 0
        metrics.time("image_cut_seconds", monotonic() - started)
        try:
            await self._outputs.settle(partition, unacked)
            cut = f"{meta['incarnation']}.{partition}.{at}.{self._session}"
            size = await self._writer.publish(partition, cut, at, meta, arrays)
        except (OutputFailed, KafkaError) as error:
            log.warning("no image of partition %d at %d: %r", partition, at, error)
            return False
        if engine.state is state:
            engine.image_at = at
        metrics.add("images_total", partition)
        metrics.put("image_at_offset", partition, value=at)
        metrics.put("image_bytes", partition, value=size)
        return True
