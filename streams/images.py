"""Images: the whole state of one partition at one offset, in chunks, on topic `images`.

`pack` and `unpack` are the format; `ImageWriter` publishes (called by `streams.worker` after the
outputs are acknowledged), `ImageReader` finds the newest complete image of a partition. A chunk is

    magic "SWI1" | u32 length of the header | header (JSON) | payload

and carries cut id, i of n, at, incarnation, law_version, crc32 of its payload and the SHA-256 of
the whole. All payloads in order are one zstd frame of: u32 length | manifest (JSON) | arrays.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from backports import zstd

from agents.log import LAW_VERSION
from agents.state import PartitionState
from schemas.codec import VERSION
from schemas.errors import BadPolicy
from streams.metrics import Metrics
from streams.settings import CHUNK_BYTES, WorkerSettings

log = logging.getLogger(__name__)

MAGIC = b"SWI1"
HEADERS = [("enc", b"image"), ("v", str(VERSION).encode())]
ALIGN = 64
FIRST_STEP = 16  # records read back at first; four times as many each further step
ENOUGH = 2  # complete images to see before the highest `at` is believed to be the newest
FETCH_BYTES = 8 * 1024 * 1024
_U32 = struct.Struct("<I")
Meta = dict[str, Any]
Array = np.ndarray[Any, np.dtype[Any]]
Arrays = Mapping[str, Array]
MAX_STATE_BYTES = 1 << 30
"""No partition's state is larger, unpacked."""
_NUMBERS = re.compile(r"[<>|=]?[iufb][1248]", re.ASCII)
_MALFORMED = (
    MemoryError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError,
    RecursionError, struct.error, zstd.ZstdError, msgspec.MsgspecError, BadPolicy,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chunk:
    """One record of `images`, read and checked on its own."""

    cut: str
    i: int
    n: int
    at: int
    incarnation: int
    law_version: int
    whole: str
    payload: bytes


class _Head(msgspec.Struct):
    """The header of a chunk."""

    cut: str
    i: int
    n: int
    at: int
    incarnation: int
    law_version: int
    crc32: int
    whole: str


def pack(
    cut: str,
    at: int,
    incarnation: int,
    meta: Meta,
    arrays: Arrays,
    law_version: int = LAW_VERSION,
) -> list[bytes]:
    """The chunks of an image; pure, slow (compression), made for a thread."""
    listing, blobs, where = [], [], 0
    for name, array in arrays.items():
        blob = np.ascontiguousarray(array).tobytes()
        blobs += [b"\0" * (-where % ALIGN), blob]
        where += -where % ALIGN
        listing.append([name, array.dtype.str, list(array.shape), where])
        where += len(blob)
    manifest = orjson.dumps({"meta": meta, "arrays": listing})
    frame = zstd.compress(b"".join([_U32.pack(len(manifest)), manifest, *blobs]), level=1)
    whole = hashlib.sha256(frame).hexdigest()
    n = max(-(-len(frame) // CHUNK_BYTES), 1)
    chunks = []
    for i in range(n):
        payload = frame[i * CHUNK_BYTES : (i + 1) * CHUNK_BYTES]
        header = orjson.dumps(
            {
                "cut": cut,
                "i": i,
                "n": n,
                "at": at,
                "incarnation": incarnation,
                "law_version": law_version,
                "crc32": crc32(payload),
                "whole": whole,
            }
        )
        chunks.append(b"".join([MAGIC, _U32.pack(len(header)), header, payload]))
    return chunks


def read_chunk(raw: bytes) -> Chunk:
    """A chunk whose own checksum holds. Raises ValueError."""
    if raw[:4] != MAGIC or len(raw) < 8:
        raise ValueError("magic")
    (length,) = _U32.unpack_from(raw, 4)
    payload = raw[8 + length :]
    try:
        said = msgspec.json.decode(raw[8 : 8 + length], type=_Head)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"header: {error}") from None
    if crc32(payload) != said.crc32:
        raise ValueError("checksum")
    return Chunk(
        said.cut, said.i, said.n, said.at, said.incarnation, said.law_version, said.whole, payload
    )


def is_whole(chunks: dict[int, Chunk]) -> bool:
    """Whether all chunks of a cut are there, by number, and together are what they promise."""
    one = next(iter(chunks.values()))
    if len(chunks) != one.n or not all(0 <= i < one.n for i in chunks):
        return False
    digest = hashlib.sha256()
    for i in sorted(chunks):
        digest.update(chunks[i].payload)
    return digest.hexdigest() == one.whole


def unpack(chunks: list[Chunk]) -> PartitionState:
    """The state in the chunks of one whole cut, in order. Raises ValueError."""
    meta, arrays = contents(chunks)
    try:
        state = PartitionState.from_arrays(meta, arrays)
    except _MALFORMED as error:
        raise ValueError(f"the image holds no state: {error!r:.200}") from None
    one = chunks[0]
    if (state.at, state.incarnation) != (one.at, one.incarnation):
        raise ValueError("the image is of another place than its chunks say")
    return state


def contents(chunks: list[Chunk]) -> tuple[Meta, dict[str, Array]]:
    """(meta, arrays) as `pack` was given them. Raises ValueError.

    What came from elsewhere may claim anything: nothing beyond `MAX_STATE_BYTES` is unpacked.
    """
    try:
        raw = memoryview(_inflated(b"".join(chunk.payload for chunk in chunks)))
        (length,) = _U32.unpack_from(raw)
        said = orjson.loads(raw[4 : 4 + length])
        body = raw[4 + length :]
        return said["meta"], {each[0]: _array(body, *each[1:]) for each in said["arrays"]}
    except _MALFORMED as error:
        raise ValueError(f"the image is malformed: {error!r:.200}") from None


def _inflated(frame: bytes) -> bytes:
    inflater = zstd.ZstdDecompressor()
    raw = inflater.decompress(frame, MAX_STATE_BYTES)
    if not inflater.eof:
        raise ValueError(f"more than {MAX_STATE_BYTES} bytes, or cut short")
    return raw


def _array(body: memoryview, dtype: str, shape: list[int], where: int) -> Array:
    if not _NUMBERS.fullmatch(dtype) or any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"an array of {dtype!r:.20} and shape {shape!r:.60}")
    flat = np.frombuffer(body, dtype=dtype, count=math.prod(shape), offset=where)
    return flat.reshape(shape).copy()


class ImageWriter:
    """Publishes images with a producer of its own, so that big records hold up no command."""

    def __init__(self, settings: WorkerSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._producer: AIOKafkaProducer | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="image")

    async def start(self) -> None:
        """Connect."""
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._settings.brokers,
            acks="all",
            max_request_size=1024 * 1024,
            max_batch_size=1024 * 1024,
            request_timeout_ms=int(self._settings.request_timeout_s * 1000),
        )
        await self._producer.start()

    async def stop(self) -> None:
        """Disconnect."""
        if self._producer is not None:
            await self._producer.stop()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def publish(self, partition: int, cut: str, at: int, meta: Meta, arrays: Arrays) -> int:
        """Publish one image and return its size in bytes once Kafka has all of it."""
        assert self._producer is not None, "start() comes first"
        chunks = await asyncio.get_running_loop().run_in_executor(
            self._thread, pack, cut, at, meta["incarnation"], meta, arrays
        )
        topic = self._settings.topic("images")
        for i, chunk in enumerate(chunks):  # one at a time: gently
            key = f"{cut}/{i}".encode()
            await self._producer.send_and_wait(
                topic, chunk, key=key, partition=partition, headers=HEADERS
            )
        return sum(map(len, chunks))


class ImageReader:
    """Finds the image to go on from."""

    def __init__(self, settings: WorkerSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics

    async def newest(self, partition: int, incarnation: int, end: int) -> PartitionState | None:
        """The state of the complete, valid image with the highest `at` below ``end``; or None.

        Half images, bad checksums and those of another law version or incarnation are passed over
        and counted. Reads back from the end, until `ENOUGH` whole images are seen.
        """
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._settings.brokers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        try:
            where = TopicPartition(self._settings.topic("images"), partition)
            consumer.assign([where])
            first = (await consumer.beginning_offsets([where]))[where]
            high = (await consumer.end_offsets([where]))[where]
            cuts: dict[str, dict[int, Chunk]] = {}
            step = FIRST_STEP
            while high > first:
                low = max(first, high - step)
                await self._read(consumer, where, low, high, cuts)
                fit = [c for c in cuts.values() if self._fits(c, incarnation, end)]
                if len(fit) >= ENOUGH:
                    break
                high, step = low, step * 4
        finally:
            await consumer.stop()
        return await asyncio.to_thread(self._best, cuts, incarnation, end)

    async def _read(
        self,
        consumer: AIOKafkaConsumer,
        where: TopicPartition,
        low: int,
        high: int,
        cuts: dict[str, dict[int, Chunk]],
    ) -> None:
        """Put the readable chunks of offsets [low, high) into ``cuts``."""
        consumer.seek(where, low)
        while await consumer.position(where) < high:
            batches = await consumer.getmany(where, timeout_ms=500)
            for record in batches.get(where, []):
                if low <= record.offset < high:
                    try:
                        chunk = read_chunk(record.value or b"")
                    except (ValueError, TypeError, KeyError):
                        self._metrics.add("images_refused_total", "broken_chunk")
                        continue
                    cuts.setdefault(chunk.cut, {})[chunk.i] = chunk

    def _fits(self, chunks: dict[int, Chunk], incarnation: int, end: int) -> bool:
        """Whether an image is whole and ours to use."""
        one = next(iter(chunks.values()))
        ours = one.incarnation == incarnation and one.law_version == LAW_VERSION
        return ours and one.at < end and is_whole(chunks)

    def _best(
        self, cuts: dict[str, dict[int, Chunk]], incarnation: int, end: int
    ) -> PartitionState | None:
        for chunks in sorted(cuts.values(), key=_at, reverse=True):
            if not self._fits(chunks, incarnation, end):
                self._metrics.add("images_refused_total", "half_or_foreign")
                continue
            try:
                return unpack([chunks[i] for i in sorted(chunks)])
            except ValueError as error:
                log.warning("image %s is refused: %s", next(iter(chunks.values())).cut, error)
                self._metrics.add("images_refused_total", "broken")
        return None


def _at(chunks: dict[int, Chunk]) -> int:
    return next(iter(chunks.values())).at
