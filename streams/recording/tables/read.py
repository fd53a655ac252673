"""Decoding: records of a recording as batches of rows, memory bounded by a chunk.

What cannot be decoded is left out, counted, and said in `Found`; nothing here raises for bad data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from schemas import codec
from schemas.errors import BadPolicy, BadRecord
from schemas.records import NodeSample
from streams.pod_sets import PodSets
from streams.recording.segment import Record
from streams.recording.tables.column import Column, Row, Table
from streams.recording.tables.sampled import Read, Sampled

if TYPE_CHECKING:
    from streams.recording.recording import Recording

CHUNK = 4_000
"""Records, or rows, that are decoded at a time."""
CHUNK_PODS = 100_000
"""Rows of `pods` in one batch, about."""


@dataclass(frozen=True, slots=True)
class Span:
    """Which rows: append times in [``from_ms``, ``to_ms``), of ``nodes`` only; None, (): all."""

    from_ms: int | None = None
    to_ms: int | None = None
    nodes: Collection[str] = ()

    def has(self, record: Record) -> bool:
        """Whether its time fits."""
        early = self.from_ms is not None and record.timestamp < self.from_ms
        late = self.to_ms is not None and record.timestamp >= self.to_ms
        return not early and not late


EVERYTHING = Span()


@dataclass(slots=True)
class Found:
    """What was left out of the rows."""

    undecodable: int = 0
    repeated: int = 0  # said again byte for byte: what a crash leaves
    examples: list[str] = field(default_factory=list)

    def refuse(self, record: Record, error: Exception) -> None:
        """Count a record that cannot be read."""
        self.undecodable += 1
        if len(self.examples) < 3:
            place = f"{record.topic}/{record.partition} offset {record.offset}"
            self.examples.append(f"{place}: {error}"[:300])


def rows_of(
    recording: Recording, table: Table, wanted: Sequence[Column], span: Span, found: Found
) -> Iterator[pa.RecordBatch]:
    """Batches of a table's rows, partition by partition, in offset order."""
    if table.kind is NodeSample:
        yield from _samples(recording, table, wanted, span, found)
        return
    schema = pa.schema([(column.name, column.type) for column in wanted])
    rows: list[Row] = []
    for row in _decoded(recording, table, span, found):
        rows.append(row)
        if len(rows) >= CHUNK:
            yield _batch(rows, wanted, schema)
            rows = []
    if rows:
        yield _batch(rows, wanted, schema)


def records_of(
    recording: Recording, topic: str, span: Span = EVERYTHING, *, keyed: bool = False
) -> Iterator[Record]:
    """Records of a topic whose time fits; ``keyed``: of the span's nodes, by the key."""
    keys = {node.encode() for node in span.nodes} if keyed else set()
    for partition in recording.partitions(topic):
        fitting = [
            segment
            for segment in recording.segments(topic, partition)
            if (span.from_ms is None or segment.last_ms >= span.from_ms)
            and (span.to_ms is None or segment.first_ms < span.to_ms)
        ]
        if not fitting:
            continue
        above, upto = fitting[0].first - 1, fitting[-1].last
        for record in recording.records(topic, partition, above, upto):
            if span.has(record) and (not keys or record.key in keys):
                yield record


def read_one(table: Table, record: Record) -> Any:
    """What a record says, None when it is none of this table's. Raises BadRecord."""
    if record.value is None:
        return None if table.erased is None else table.erased(record)
    enc = codec.encoding_of(record.headers)
    if codec.kind_of(table.topic, record.key, enc) is not table.kind:
        return None
    if table.kind is NodeSample:
        return codec.parse_sample(record.value, record.key, enc)
    return codec.decode(table.kind, record.value)


def _decoded(recording: Recording, table: Table, span: Span, found: Found) -> Iterator[Row]:
    said: set[int] = set()
    nodes = frozenset(span.nodes)
    for record in records_of(recording, table.topic, span, keyed=table.keyed):
        try:
            one = read_one(table, record)
            if one is None:
                continue
            parts = (None,) if table.parts is None else tuple(table.parts(one))
        except (BadRecord, BadPolicy) as error:
            found.refuse(record, error)
            continue
        if table.caused:
            cause = one.cause
            key = (cause.partition, cause.incarnation, cause.offset, record.key, record.value)
            if (mark := hash(key)) in said:
                found.repeated += 1
                continue
            said.add(mark)
        for each in parts:
            row = Row(record, one, each)
            if not nodes or _node_of(row) in nodes:
                yield row


def _node_of(row: Row) -> str:
    if isinstance(row.part, tuple) and not hasattr(row.said, "node"):
        return str(row.part[0])
    return str(getattr(row.said, "node", ""))


def _batch(rows: list[Row], wanted: Sequence[Column], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array([c.take(row) for row in rows], type=c.type) for c in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _samples(
    recording: Recording, table: Table, wanted: Sequence[Column], span: Span, found: Found
) -> Iterator[pa.RecordBatch]:
    sets = PodSets(records_of(recording, "inventory"))
    sampled = Sampled(table, wanted, sets)
    read: list[Read] = []
    pods = 0
    for record in records_of(recording, "samples", span, keyed=True):
        try:
            sample = read_one(table, record)
        except BadRecord as error:
            found.refuse(record, error)
            continue
        if sample is None:
            continue
        read.append((record, sample))
        pods += sample.pods
        if len(read) >= CHUNK or pods >= CHUNK_PODS:
            yield sampled.batch(read)
            read, pods = [], 0
    if read:
        yield sampled.batch(read)
