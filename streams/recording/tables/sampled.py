"""The tables `samples` and `pods`: raw counters, column by column as they were sent.

Many samples are read side by side, whatever their layouts, because a recording has hundreds of
thousands of them; `streams.recording.tables.read` hands them over in chunks.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.columns import NODE_COLUMNS, POD_COLUMNS
from schemas.packed import HAS_BITMAP, PackedSample
from schemas.records import NodeSample, PodFact
from streams.pod_sets import PodSets
from streams.recording.segment import Record
from streams.recording.tables.column import CODE, INT, SIGNER, TEXT, WHERE, Column, Row, Table, said

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Read = tuple[Record, PackedSample]
Values = tuple[Ints, Bools]  # and which of them are there
Codes = dict[str, npt.NDArray[np.int32]]  # of the pods of one sample, by fact
_ROW = struct.Struct("<HHI")


def _taken_elsewhere(row: Row) -> Any:
    raise AssertionError(f"read column by column, not by row: {row}")


def _measured(name: str, kind: pa.DataType, meaning: str) -> Column:
    return Column(name, kind, meaning, _taken_elsewhere)


SAMPLES = Table(
    "samples", "samples", NodeSample, "a sample of a node",
    (
        *WHERE,
        said("node", TEXT, "its name", take=lambda sample: sample.node.decode()),
        said("boot", TEXT, "start of the agent", take=lambda sample: sample.boot.hex()),
        said("kernel_boot", TEXT, "start of the kernel",
             take=lambda sample: sample.kernel_boot.hex()),
        said("seq", INT, "number of the sample in that start of the agent, from 1"),
        said("mono_us", INT, "the node's monotonic clock"),
        said("wall_ms", INT, "the node's wall clock: shown, never used"),
        said("period_ms", INT, "how often it measures"),
        said("pods_rev", INT, "revision of the pod set (`pod_facts`)"),
        said("pods", INT, "pods in it"),
        SIGNER,
        *(_measured(name, INT, f"{c.kind}: {c.doc}") for name, c in NODE_COLUMNS.items()),
    ),
    keyed=True,
)  # fmt: skip

FACTS: tuple[tuple[str, str], ...] = (
    ("uid", "the pod's; null: no inventory of that revision is there"),
    ("namespace", "the pod's"),
    ("name", "the pod's"),
    ("workload", "what it is a part of"),
    ("qos", "LSE, LSR, LS, BE, SYSTEM"),
    ("priority_class", "prod, mid, batch, free"),
)
_FACT_NAMES = {name for name, _ in FACTS}
PODS = Table(
    "pods", "samples", NodeSample, "a pod in a sample of its node",
    (
        *WHERE,
        _measured("node", CODE, "its name"),
        _measured("boot", CODE, "start of the agent: counters begin anew"),
        _measured("mono_us", INT, "the node's monotonic clock"),
        _measured("pods_rev", INT, "revision of the pod set"),
        _measured("place", INT, "of the pod in that set, from 0"),
        *(_measured(name, CODE, meaning) for name, meaning in FACTS),
        *(_measured(name, INT, f"{c.kind}: {c.doc}") for name, c in POD_COLUMNS.items()),
    ),
    keyed=True,
)  # fmt: skip
TABLES = (SAMPLES, PODS)
_IDS = {
    SAMPLES.name: {name: column.id for name, column in NODE_COLUMNS.items()},
    PODS.name: {name: column.id for name, column in POD_COLUMNS.items()},
}
_HEADS: dict[str, Callable[[Read], int]] = {
    "partition": lambda read: read[0].partition,
    "log_offset": lambda read: read[0].offset,
    "log_ms": lambda read: read[0].timestamp,
    "time": lambda read: read[0].timestamp,
    "pods_rev": lambda read: read[1].pods_rev,
    "mono_us": lambda read: read[1].mono_us,
}
_NAMED: dict[str, Callable[[PackedSample], str]] = {
    "node": lambda sample: sample.node.decode(),
    "boot": lambda sample: sample.boot.hex(),
}


class Vocabulary:
    """Texts as codes; the dictionary of a column, which only grows."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        return self._codes.setdefault(text, len(self._codes))

    def array(self, codes: npt.NDArray[np.int32]) -> pa.Array:
        """Codes [n] as a dictionary array; -1 is null."""
        indices = pa.array(codes, type=pa.int32(), mask=codes < 0)
        return pa.DictionaryArray.from_arrays(indices, pa.array(list(self._codes), type=TEXT))


class Sampled:
    """Makes batches of `samples` or `pods`; ``wanted``: the columns, in order."""

    def __init__(self, table: Table, wanted: Sequence[Column], sets: PodSets) -> None:
        self._table, self._wanted, self._sets = table, wanted, sets
        self._schema = pa.schema([(column.name, column.type) for column in wanted])
        ids = _IDS[table.name]
        self._measured = {ids[c.name]: c.name for c in wanted if c.name in ids}
        self._words = {name: Vocabulary() for name in (*_NAMED, *(name for name, _ in FACTS))}
        self._codes: dict[int, tuple[Any, Codes]] = {}

    def batch(self, read: Sequence[Read]) -> pa.RecordBatch:
        """The rows of these samples, in their order."""
        per_pod = self._table is PODS
        spread = _Spread([sample for _, sample in read], per_pod)
        measured = spread.columns(self._measured)
        asked = per_pod and any(column.name in _FACT_NAMES for column in self._wanted)
        facts = [self._facts(*one) for one in read] if asked else []
        arrays = []
        for column in self._wanted:
            if column.name in measured:
                values, has = measured[column.name]
                arrays.append(pa.array(values, type=INT, mask=None if has.all() else ~has))
            elif per_pod:
                arrays.append(self._of_pods(column, read, spread.counts, facts))
            else:
                rows = [column.take(Row(record, sample)) for record, sample in read]
                arrays.append(pa.array(rows, type=column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _of_pods(
        self, column: Column, read: Sequence[Read], counts: Ints, facts: Sequence[Codes]
    ) -> pa.Array:
        """A column that all pods of a sample share, or that their facts say."""
        if column.name in _HEADS:
            get = _HEADS[column.name]
            heads = np.array([get(one) for one in read], dtype=np.int64)
            return pa.array(heads.repeat(counts), type=INT).cast(column.type)
        if column.name == "place":
            starts = (np.cumsum(counts) - counts).repeat(counts)
            return pa.array(np.arange(len(starts)) - starts, type=INT)
        words = self._words[column.name]
        if column.name in _NAMED:
            name_of = _NAMED[column.name]
            codes = np.array([words.code(name_of(sample)) for _, sample in read], dtype=np.int32)
            return words.array(codes.repeat(counts))
        found = [one[column.name] for one in facts]
        return words.array(np.concatenate(found) if found else np.zeros(0, dtype=np.int32))

    def _facts(self, record: Record, sample: PackedSample) -> Codes:
        """Codes of a sample's pods for each fact; -1 where the set is not known."""
        pods = self._sets.of_revision(sample.node.decode(), sample.pods_rev, record.timestamp)
        if pods is None or len(pods) != sample.pods:
            nobody = np.full(sample.pods, -1, dtype=np.int32)
            return {name: nobody for name, _ in FACTS}
        kept = self._codes.get(id(pods))
        if kept is None:
            coded = {name: self._coded(name, pods) for name, _ in FACTS}
            kept = self._codes[id(pods)] = (pods, coded)  # held, so that the id stays its own
        return kept[1]

    def _coded(self, name: str, pods: Sequence[PodFact]) -> npt.NDArray[np.int32]:
        words = self._words[name]
        return np.array([words.code(getattr(pod, name)) for pod in pods], dtype=np.int32)


class _Spread:
    """The payloads of many samples as columns; ``counts``: rows of each sample."""

    def __init__(self, samples: Sequence[PackedSample], per_pod: bool) -> None:
        self._per_pod = per_pod
        payloads = [sample.payload for sample in samples]
        self._words: Ints = np.frombuffer(b"".join(payloads), dtype="<i8")
        sizes = np.array([len(payload) >> 3 for payload in payloads], dtype=np.int64)
        self._base = np.cumsum(sizes) - sizes
        pods = [sample.pods if per_pod else 1 for sample in samples]
        self.counts: Ints = np.array(pods, dtype=np.int64)
        self._start = np.cumsum(self.counts) - self.counts
        self._alike: dict[tuple[bytes, int], list[int]] = defaultdict(list)
        for i, sample in enumerate(samples):
            self._alike[sample.layout, sample.pods].append(i)

    def columns(self, wanted: dict[int, str]) -> dict[str, Values]:
        """Values and presence of the columns ``wanted`` (id -> name), a row a sample or pod."""
        rows = int(self.counts.sum())
        found = {
            name: (np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.bool_))
            for name in wanted.values()
        }
        for (layout, pods), alike in self._alike.items():
            which = np.array(alike, dtype=np.int64)
            count = pods if self._per_pod else 1
            place = np.arange(count)
            into = (self._start[which][:, None] + place).ravel()
            base = self._base[which][:, None]
            word = 0
            for column_id, flags, values in _ROW.iter_unpack(layout):
                bitmap = (values + 63) // 64 if flags & HAS_BITMAP else 0
                name = wanted.get(column_id)
                if name is not None:
                    amounts, has = found[name]
                    amounts[into] = self._words[(base + word + bitmap + place).ravel()]
                    there: Any = True
                    if bitmap:
                        bits = self._words[(base + word + (place >> 6)).ravel()]
                        there = bits >> np.tile(place & 63, len(alike)) & 1 == 1
                    has[into] = there
                word += bitmap + values
        return found
