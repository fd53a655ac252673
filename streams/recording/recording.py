"""A recording or a bundle, opened: its manifest, its records by topic, partition and offset.

Every reader of the past goes through here. A segment is checked against its checksum before it is
read for the first time; one that is damaged is named in `Recording.problems`, and reading goes on
behind it. Memory: a row group at a time.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from streams.recording import manifest as manifests
from streams.recording.container import Bundle, Files, Folder
from streams.recording.manifest import LAST_MS, BadRecording, Manifest, Problem, Segment
from streams.recording.pages import implausible
from streams.recording.segment import Record, records_of
from streams.recording.store import read_folder

Place = tuple[str, int]
_DAMAGED = (OSError, pa.ArrowException, ValueError, TypeError)
"""What reading a file of others may raise: columns of text that is none are a ValueError."""


class Recording:
    """``manifest``: what it says of itself. ``problems``: what cannot be used; grows by reading."""

    def __init__(self, manifest: Manifest, files: Files, problems: list[Problem]) -> None:
        self.manifest = manifest
        self.problems = problems
        self._files = files
        self._segments: dict[Place, list[Segment]] = defaultdict(list)
        self._checked: dict[str, bool] = {}
        for segment in sorted(manifest.segments, key=lambda s: (s.topic, s.partition, s.first)):
            here = self._segments[segment.topic, segment.partition]
            if here and segment.first <= here[-1].last:
                self.problems.append(Problem(segment.name, f"overlaps {here[-1].name}"))
            else:
                here.append(segment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self._files.close()

    @property
    def end_ms(self) -> int:
        """Append time of the newest record; 0 without any."""
        return max((segment.last_ms for segment in self.manifest.segments), default=0)

    @property
    def places(self) -> tuple[Place, ...]:
        """Every (topic, partition) that has records, sorted."""
        return tuple(sorted(self._segments))

    def partitions(self, topic: str = "samples") -> tuple[int, ...]:
        """The partitions of a topic that have records, sorted."""
        return tuple(number for name, number in self.places if name == topic)

    def segments(self, topic: str, partition: int) -> tuple[Segment, ...]:
        """The segments of one partition, in offset order; damaged ones too."""
        return tuple(self._segments.get((topic, partition), ()))

    def records(
        self, topic: str, partition: int, above: int = -1, upto: int | None = None
    ) -> Iterator[Record]:
        """Records with offsets in (above, upto], in order; what is damaged is left out."""
        segments = self._segments.get((topic, partition), [])
        begin = max(bisect_right(segments, above, key=lambda s: s.first) - 1, 0)
        for segment in segments[begin:]:
            if upto is not None and segment.first > upto:
                return
            if segment.last <= above or not self.sound(segment):
                continue
            yield from self._read(segment, above, segment.last if upto is None else upto)

    def table(
        self,
        name: str,
        *,
        columns: Sequence[str] = (),
        from_ms: int | None = None,
        to_ms: int | None = None,
        nodes: Collection[str] = (),
    ) -> pa.Table:
        """A decoded table: one row a record, or a pod in it; see `streams.recording.tables`."""
        from streams.recording import tables  # noqa: PLC0415  (a replay needs none of it)

        return tables.table(self, name, columns=columns, from_ms=from_ms, to_ms=to_ms, nodes=nodes)

    def last(self, topic: str, partition: int) -> int:
        """The highest offset recorded; -1 for none."""
        return max((s.last for s in self._segments.get((topic, partition), ())), default=-1)

    def since(self, topic: str, partition: int, ms: int) -> int:
        """The first offset of the segment in which records of ``ms`` or later begin."""
        for segment in self._segments.get((topic, partition), ()):
            if segment.last_ms >= ms:
                return segment.first
        return self.last(topic, partition) + 1

    def fault(self, topic: str, partition: int, above: int, upto: int) -> str:
        """Why records in (above, upto] are known to be lost: damage, or a gap; "" for none."""
        for gap in self.manifest.gaps:
            here = (gap.topic, gap.partition) == (topic, partition)
            if here and gap.first <= upto and gap.last > above:
                return f"{topic}/{partition} {gap.first}..{gap.last} was lost: {gap.why}"
        for segment in self._segments.get((topic, partition), ()):
            if segment.first <= upto and segment.last > above and not self.sound(segment):
                why = next(p.why for p in self.problems if p.name == segment.name)
                return f"{segment.name} {why}"
        return ""

    def sound(self, segment: Segment) -> bool:
        """Whether a segment is as its manifest says; looked at once."""
        known = self._checked.get(segment.name)
        if known is None:
            why = self._fault(segment)
            if why:
                self.problems.append(Problem(segment.name, why))
            known = self._checked[segment.name] = not why
        return known

    def verify(self) -> bool:
        """Look at every segment; whether all are sound (`problems` names the others)."""
        wrong = [s for s in self.manifest.segments if not self.sound(s)]
        return not wrong and not self.problems

    def _fault(self, segment: Segment) -> str:
        """What is wrong with a segment; "" for nothing."""
        try:
            with self._files.open(segment.name) as file:
                size = file.seek(0, 2)
                if size != segment.size_bytes:
                    return f"has {size} bytes, the manifest says {segment.size_bytes}"
                file.seek(0)
                if hashlib.file_digest(file, "sha256").hexdigest() != segment.sha256:
                    return "is damaged (checksum)"
                file.seek(0)
                return implausible(file, pq.ParquetFile(file).metadata, segment, size)
        except FileNotFoundError:
            return "is missing"
        except _DAMAGED as error:
            return f"cannot be read: {error}"[:300]

    def _read(self, segment: Segment, above: int, upto: int) -> Iterator[Record]:
        """Records in (above, upto]; row groups without any are not decoded."""
        try:
            with self._files.open(segment.name) as file:
                parquet = pq.ParquetFile(file)
                before = segment.first - 1
                for number in range(parquet.num_row_groups):
                    offsets = parquet.metadata.row_group(number).column(0).statistics
                    if offsets is not None and offsets.has_min_max:
                        if offsets.max <= above:
                            continue
                        if offsets.min > upto:
                            return
                    for batch in parquet.read_row_group(number, use_threads=False).to_batches():
                        before = _follows(batch, before, segment)
                        kept = _between(batch, above, upto)
                        yield from records_of(kept, segment.topic, segment.partition)
        except _DAMAGED as error:
            self._checked[segment.name] = False
            self.problems.append(Problem(segment.name, f"cannot be read: {error}"[:300]))


def _between(batch: pa.RecordBatch, above: int, upto: int) -> pa.RecordBatch:
    """The rows with offsets in (above, upto]."""
    offsets = batch.column("offset").to_numpy()
    begin, end = offsets.searchsorted((above, upto), side="right")
    return batch.slice(begin, end - begin)


def _follows(batch: pa.RecordBatch, before: int, segment: Segment) -> int:
    """The last offset of a batch. Raises ValueError for offsets or times that cannot be."""
    offsets = batch.column("offset").to_numpy()
    times = batch.column("log_ms").to_numpy()
    rising = len(offsets) < 2 or bool((offsets[1:] > offsets[:-1]).all())
    if not len(offsets) or not rising or offsets[0] <= before or offsets[-1] > segment.last:
        raise ValueError(f"offsets that do not rise from {segment.first} to {segment.last}")
    if times.min() < 0 or times.max() > LAST_MS:
        raise ValueError("a time that cannot be")
    return int(offsets[-1])


def open_recording(path: str | Path) -> Recording:
    """Open a recording (folder) or a bundle (file) for reading.

    Raises BadRecording for what is neither, and for a bundle without a readable manifest.
    """
    where = Path(path)
    try:
        if where.is_dir():
            manifest, problems = read_folder(where)
            return Recording(manifest, Folder(where), problems)
        bundle = Bundle(where)
    except FileNotFoundError:
        raise BadRecording(f"{where} does not exist") from None
    except OSError as error:
        raise BadRecording(f"{where} cannot be opened: {error.strerror or error}") from None
    try:
        return Recording(manifests.read(bundle.manifest), bundle, bundle.problems)
    except BadRecording as error:
        bundle.close()
        raise BadRecording(f"{where}: {error}") from None


def now_of(path: str | Path | None) -> int:
    """What ``now`` and ``-15m`` are counted from: a recording's end; None, live topics: the clock.

    Raises BadRecording.
    """
    if path is None:
        return time.time_ns() // 1_000_000
    with open_recording(path) as recording:
        return recording.end_ms
