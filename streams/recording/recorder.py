"""Follows the topics of an installation into a folder, without a consumer group.

Run by `slackwater record`. Where to go on is what the folder says, never what Kafka says. The
folder is written by `streams.recording.disk`, in a thread, while the next records are fetched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError

from schemas.topics import BY_NAME, full_name
from streams.metrics import Metrics
from streams.recording import store
from streams.recording.disk import Disk, Sizes
from streams.recording.folder import opened
from streams.recording.progress import Progress
from streams.recording.store import Place
from streams.topic_reader import CannotRun, partitions_of, started
from streams.topics_admin import installation_of

log = logging.getLogger("slackwater.record")

FETCH_BYTES = 1024 * 1024
"""A broker answers when it has so much, or after `FETCH_WAIT_MS`: large answers cost it less."""
FETCH_WAIT_MS = 500
PARTITION_BYTES = 2 * FETCH_BYTES
TELL_S = 2.0
AGAIN_S = 1.0
FULL_S = (1.0, 30.0)
STALL_S = 120.0
RETENTION = "retention was faster than the recorder"
ALWAYS_WHOLE = tuple(name for name, row in BY_NAME.items() if row.side and row.compacted)
"""Facts of old are wanted, wherever a recording begins."""
Begin = int | str


@dataclass(frozen=True, slots=True)
class Settings:
    """``begin``: where a place that is not in the folder begins: beginning, now, or log ms."""

    folder: Path
    brokers: str
    prefix: str
    topics: tuple[str, ...]
    begin: Begin
    sizes: Sizes


class Recorder:
    """One folder, one installation. ``tell`` hears every `TELL_S` how it goes."""

    def __init__(
        self, settings: Settings, metrics: Metrics, tell: Callable[[Progress], None]
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self._tell = tell
        self._names = {full_name(settings.prefix, name): name for name in settings.topics}
        self._records: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._ends: dict[TopicPartition, int] = {}  # when it began; fetches know newer ones
        self._full_s = 0.0
        self._round_s = time.monotonic()
        self._connected = False

    def live(self) -> str:
        """What is wrong, or "": a disk that does not answer is not mended by waiting."""
        silent_s = time.monotonic() - self._round_s
        return f"nothing was written for {silent_s:.0f} s" if silent_s > STALL_S else ""

    def ready(self) -> str:
        """What it waits for; "" once it follows."""
        return "" if self._connected else "not yet connected"

    async def run(self, stop: asyncio.Event) -> None:
        """Record until ``stop``. Raises CannotRun, BadRecording, OSError."""
        brokers, prefix = self.settings.brokers, self.settings.prefix
        async with started(_consumer(brokers), brokers) as client:
            parts = [part for name in self._names for part in await partitions_of(client, name)]
            installation = await installation_of(brokers, prefix)
            if installation is None:
                raise CannotRun("topic fleet holds no installation: run `slackwater topics create`")
            folder = self.settings.folder
            manifest, held = await asyncio.to_thread(opened, folder, prefix, installation)
            try:
                disk = await asyncio.to_thread(
                    Disk, folder, manifest, self.settings.sizes, map(self._place, parts)
                )
                await self._begin(client, parts, disk)
                await self._follow(client, disk, stop)
            finally:
                os.close(held)

    async def _begin(
        self, client: AIOKafkaConsumer, parts: list[TopicPartition], disk: Disk
    ) -> None:
        """Positions: where the folder ends, or where the settings say."""
        firsts = await client.beginning_offsets(parts)
        ends = self._ends = await client.end_offsets(parts)
        at = await _starts(client, parts, self.settings.begin, firsts, ends)
        client.assign(parts)
        new: store.Begins = {}
        for part in parts:
            place = self._place(part)
            if disk.next(place) is None:
                whole = place[0] in ALWAYS_WHOLE
                new[place] = (firsts[part] if whole else at[part], ends[part])
            else:
                _check_end(place, disk, ends[part])
                disk.skip(place, firsts[part], RETENTION)
        await asyncio.to_thread(disk.begin, new)
        self._read_again(client, disk, map(self._place, parts))
        log.info("records %d partitions of %d topics", len(parts), len(self._names))
        self._connected = True

    async def _follow(self, client: AIOKafkaConsumer, disk: Disk, stop: asyncio.Event) -> None:
        told_s = 0.0
        try:
            while not stop.is_set():
                batches = await self._fetched(client, disk, stop)
                again = await asyncio.to_thread(self._write, disk, batches)
                self._round_s = time.monotonic()
                self._read_again(client, disk, again)
                await self._rest(stop, full=bool(again))
                if time.monotonic() - told_s >= TELL_S:
                    told_s = time.monotonic()
                    await self._say(client, disk, ended=False)
        finally:
            left = await asyncio.to_thread(disk.finish_all)
            if left:
                log.warning("%d open segments found no room; they will be read again", len(left))
            await self._say(client, disk, ended=True)

    async def _fetched(
        self, client: AIOKafkaConsumer, disk: Disk, stop: asyncio.Event
    ) -> dict[Place, list[Any]]:
        """What has come; nothing while the broker is away."""
        try:
            found = await client.getmany(timeout_ms=FETCH_WAIT_MS)
        except OffsetOutOfRangeError as error:
            await self._out_of_range(client, disk, list(error.args[0]))
            return {}
        except TopicAuthorizationFailedError as error:
            raise CannotRun(
                f"the broker lets us not read ({error}): see docs/security.md"
            ) from None
        except KafkaError as error:
            log.warning("nothing can be read: %r; trying again", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), AGAIN_S)
            return {}
        return {self._place(part): records for part, records in found.items()}

    def _write(self, disk: Disk, batches: dict[Place, list[Any]]) -> set[Place]:
        again = disk.take(batches)
        for (topic, _), records in batches.items():
            self._records[topic] += len(records)
            self._bytes[topic] += sum(len(each.value or b"") for each in records)
        return again | disk.answer()

    def _read_again(self, client: AIOKafkaConsumer, disk: Disk, places: Iterable[Place]) -> None:
        for place in places:
            client.seek(self._part(place), disk.next(place))

    async def _rest(self, stop: asyncio.Event, *, full: bool) -> None:
        """While the disk is full: wait longer each time."""
        if not full:
            self._full_s = 0.0
            return
        self._full_s = min(max(self._full_s * 2, FULL_S[0]), FULL_S[1])
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), self._full_s)

    async def _out_of_range(
        self, client: AIOKafkaConsumer, disk: Disk, parts: list[TopicPartition]
    ) -> None:
        """Retention has passed us by, or the topic is another one than before."""
        try:
            firsts = await client.beginning_offsets(parts)
            ends = await client.end_offsets(parts)
        except KafkaError as error:
            log.warning("offsets are not known: %r", error)
            self._read_again(client, disk, map(self._place, parts))
            return
        for part in parts:
            place = self._place(part)
            _check_end(place, disk, ends[part])
            await asyncio.to_thread(disk.skip, place, firsts[part], RETENTION)
            client.seek(part, disk.next(place))

    async def _say(self, client: AIOKafkaConsumer, disk: Disk, *, ended: bool) -> None:
        lag: Counter[str] = Counter()
        for part in client.assignment():
            place = self._place(part)
            end = client.highwater(part) or self._ends[part]
            lag[place[0]] += max(end - (disk.next(place) or 0), 0)
        counts = dict(self._records), dict(self._bytes), dict(lag)
        progress = Progress.of(disk, *counts, ended=ended)
        progress.show(self.metrics)
        await asyncio.to_thread(progress.write, self.settings.folder)
        self._tell(progress)

    def _place(self, part: TopicPartition) -> Place:
        return self._names[part.topic], part.partition

    def _part(self, place: Place) -> TopicPartition:
        return TopicPartition(full_name(self.settings.prefix, place[0]), place[1])


def _consumer(brokers: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=brokers,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_min_bytes=FETCH_BYTES,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        max_partition_fetch_bytes=PARTITION_BYTES,
    )


def _check_end(place: Place, disk: Disk, end: int) -> None:
    """What is recorded lies beyond the end of the topic: it is not the topic that it was."""
    if (disk.next(place) or 0) > end:
        raise CannotRun(
            f"{place[0]}/{place[1]} ends at {end}, but is recorded up to {disk.next(place)}: the "
            "topics were made anew or have lost records; record into another folder"
        )


async def _starts(
    client: AIOKafkaConsumer,
    parts: list[TopicPartition],
    begin: Begin,
    firsts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Where places begin that are not in the folder."""
    if begin == "beginning":
        return firsts
    if begin == "now":
        return ends
    found = await client.offsets_for_times(dict.fromkeys(parts, int(begin)))
    return {part: ends[part] if at is None else at.offset for part, at in found.items()}
