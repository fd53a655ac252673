"""The state that a newly assigned partition goes on from: its newest image, or a cold refold.

Called by `streams.worker`. Nothing here relies on the order of Faust's rebalance callbacks.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic

from aiokafka import AIOKafkaConsumer, TopicPartition

from agents.state import PartitionState
from streams.images import ImageReader
from streams.log_clock import LogClock
from streams.metrics import Metrics
from streams.settings import WorkerSettings
from streams.side_inputs import SideReader

log = logging.getLogger(__name__)

AT_ONCE = 16  # most of what one worker inherits: read before folding the first keeps the loop busy


@dataclass(frozen=True, slots=True)
class Found:
    """A state to go on from. ``mute_until``: outputs of earlier records are not said.

    ``end``: the log's end offset when it was looked for.
    """

    state: PartitionState
    mute_until: int
    image_at: int | None
    end: int


class Recovery:
    """Finds states; ``probe`` is a connected consumer without assignment."""

    def __init__(
        self,
        settings: WorkerSettings,
        metrics: Metrics,
        probe: AIOKafkaConsumer,
        incarnation: int,
        side: SideReader,
        clock: LogClock,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._probe = probe
        self._incarnation = incarnation
        self._side = side
        self._clock = clock
        self._images = ImageReader(settings, metrics)
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def find(self, partition: int) -> Found:
        """The state of a partition, with its side inputs being read. Raises KafkaError."""
        started = monotonic()
        async with self._turns:
            where = TopicPartition(self._settings.topic("samples"), partition)
            end = int((await self._probe.end_offsets([where]))[where])
            state = await self._images.newest(partition, self._incarnation, end)
            if state is not None:
                image_at, mute_until, how = state.at, 0, "image"
                await self._side.own(partition, state.side, cold=False)
            else:
                image_at = None
                state, mute_until = await self._without_image(where, end)
                how = "cold" if mute_until else "beginning"
        self._metrics.time("recovery_seconds", monotonic() - started)
        log.info(
            "partition %d: %s at %d, log ends at %d, %.2f s",
            partition, how, state.at, end, monotonic() - started,
        )  # fmt: skip
        return Found(state, mute_until, image_at, end)

    async def _without_image(self, where: TopicPartition, end: int) -> tuple[PartitionState, int]:
        """A log that is whole and short is folded from its beginning: that is exact.

        Otherwise the last ``cold_lookback_ms`` are folded without a word: what they led to was
        said by a predecessor, out of a state that is lost. The law then holds capacity at what is
        lent until its windows are warm again.
        """
        partition = where.partition
        state = PartitionState(partition, self._incarnation)
        first = int((await self._probe.beginning_offsets([where]))[where])
        begin = await self._lookback(where, end) if end > first else end
        if begin <= first == 0:
            await self._side.own(partition, {}, cold=False)
            return state, 0
        begin = max(begin, first)
        self._metrics.add("cold_starts_total")
        log.warning("partition %d has no image: folds %d..%d cold", partition, begin, end - 1)
        state.at = begin - 1
        state.side = await self._side.own(partition, {}, cold=True)
        return state, end

    async def _lookback(self, where: TopicPartition, end: int) -> int:
        """The offset ``cold_lookback_ms`` before the newest record, by broker time."""
        reader = AIOKafkaConsumer(
            bootstrap_servers=self._settings.brokers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await reader.start()
        try:
            reader.assign([where])
            reader.seek(where, end - 1)
            record = await asyncio.wait_for(reader.getone(where), 10)
            self._clock.saw(record.timestamp, monotonic())
            since = record.timestamp - self._settings.cold_lookback_ms
            found = (await reader.offsets_for_times({where: max(since, 0)}))[where]
        finally:
            await reader.stop()
        return end if found is None else int(found.offset)
