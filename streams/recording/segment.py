"""One Parquet file: records of one partition as they were on the topic, byte for byte.

Columns: ``offset`` and ``log_ms`` (int64), ``key`` and ``value`` (binary, null for a tombstone),
``enc`` and ``v`` (the two headers every record of ours has), ``headers`` (the others, as a list of
name and value; all of them where the first two are not as ours). Written by the recorder and the
cut, read by `streams.recording.recording`.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from streams.recording.manifest import Segment

ROWS = 4_000  # of one row group at most
GROUP_BYTES = 8 * 1024 * 1024  # raw bytes of one row group, about
LEVEL = 3
USUAL_BYTES = 16  # of ``enc`` and ``v``; longer ones are no names of ours
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("log_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("enc", pa.binary()),
        pa.field("v", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ]
)
Headers = tuple[tuple[str, bytes], ...]


class Consumed(Protocol):
    """What is written: aiokafka's ConsumerRecord, or a `Record`."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Any


@dataclass(slots=True)
class Record:
    """A record as it was on the topic; the names are those of aiokafka's ConsumerRecord.

    ``topic`` is the name in the topic table, ``timestamp`` the broker's append time in ms.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Writer:
    """Writes one segment into ``file``, which is seekable and empty; `close` says what it holds."""

    def __init__(self, topic: str, partition: int, file: IO[bytes]) -> None:
        self.topic, self.partition = topic, partition
        self.raw_bytes = 0
        self.records = 0
        self._file = file
        self._parquet = pq.ParquetWriter(
            file, SCHEMA, compression="zstd", compression_level=LEVEL,
            use_dictionary=["enc", "v"], write_statistics=["offset", "log_ms"],
        )  # fmt: skip
        self._held: list[Consumed] = []
        self._held_bytes = self._held_heads = 0
        self._first: Consumed | None = None
        self._last: Consumed | None = None

    def write(self, records: Iterable[Consumed]) -> None:
        """Append records; offsets only rise."""
        for record in records:
            if self._last is not None and record.offset <= self._last.offset:
                raise ValueError(f"offset {record.offset} after {self._last.offset}")
            if self._first is None:
                self._first = record
            self._last = record
            self._held.append(record)
            self._held_bytes += len(record.key or b"") + len(record.value or b"")
            self._held_heads += sum(len(value or b"") for _, value in record.headers or ())
            if len(self._held) == ROWS or self._held_bytes + self._held_heads >= GROUP_BYTES:
                self.flush()

    def close(self) -> Segment:
        """Finish the file, which stays open. Raises ValueError when nothing was written."""
        if self._first is None or self._last is None:
            raise ValueError("a segment without records")
        self.flush()
        self._parquet.close()
        self._file.seek(0)
        digest = hashlib.file_digest(self._file, "sha256").hexdigest()  # type: ignore[arg-type]
        return Segment(
            topic=self.topic,
            partition=self.partition,
            first=self._first.offset,
            last=self._last.offset,
            records=self.records,
            first_ms=self._first.timestamp,
            last_ms=self._last.timestamp,
            size_bytes=self._file.seek(0, 2),
            raw_bytes=self.raw_bytes,
            sha256=digest,
        )

    def abandon(self) -> None:
        """Give up; what was written is no segment. The file must still take what it is given."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._parquet.close()
        self._parquet.is_open = False

    @property
    def held_bytes(self) -> int:
        """Of records that are not yet in the file."""
        return self._held_bytes

    def flush(self) -> None:
        """Put what is held into the file, as a row group. Raises OSError."""
        if self._held:
            self._parquet.write_table(table(self._held), row_group_size=ROWS)
            self.records += len(self._held)
            self.raw_bytes += self._held_bytes
            self._held, self._held_bytes, self._held_heads = [], 0, 0


def table(records: Sequence[Consumed]) -> pa.Table:
    """Records as the columns of `SCHEMA`."""
    encs, versions, others = zip(*(_split(record.headers) for record in records), strict=True)
    columns = [
        [record.offset for record in records],
        [record.timestamp for record in records],
        [record.key for record in records],
        [record.value for record in records],
        encs,
        versions,
        others,
    ]
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def records_of(batch: pa.RecordBatch, topic: str, partition: int) -> Iterator[Record]:
    """The records of a batch of a segment's rows, in their order."""
    columns = {name: batch.column(name) for name in SCHEMA.names}
    encs, versions = columns["enc"].to_pylist(), columns["v"].to_pylist()
    headers: Iterable[Any] = repeat(None)
    if columns["headers"].null_count < len(batch):
        headers = columns["headers"].to_pylist()
    usual: dict[tuple[bytes | None, bytes | None], Headers] = {}
    for offset, log_ms, key, value, enc, version, more in zip(
        columns["offset"].to_pylist(), columns["log_ms"].to_pylist(),
        columns["key"].to_pylist(), columns["value"].to_pylist(), encs, versions, headers,
        strict=False,
    ):  # fmt: skip
        first = usual.get((enc, version))
        if first is None:
            first = usual[enc, version] = _first(enc, version)
        if more is not None:
            first += tuple((each["name"], each["value"]) for each in more)
        yield Record(topic, partition, offset, log_ms, key, value, first)


def _first(enc: bytes | None, version: bytes | None) -> Headers:
    return () if enc is None or version is None else (("enc", enc), ("v", version))


def _split(headers: Any) -> tuple[bytes | None, bytes | None, list[dict[str, Any]] | None]:
    """``enc``, ``v`` and the others; nothing is lost, whatever the headers are."""
    pairs = tuple(headers or ())
    if (
        len(pairs) >= 2
        and (pairs[0][0], pairs[1][0]) == ("enc", "v")
        and all(value is not None and len(value) <= USUAL_BYTES for _, value in pairs[:2])
    ):
        rest = [{"name": name, "value": value} for name, value in pairs[2:]]
        return pairs[0][1], pairs[1][1], rest or None
    return None, None, [{"name": name, "value": value} for name, value in pairs] or None
