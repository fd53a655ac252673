"""What a kill or a full disk may have left in a partition's folder, put in order.

Called by `streams.recording.disk` before it writes into a folder. Nothing whole is thrown away: a
segment without a line in the journal gets one.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streams.recording import store
from streams.recording.manifest import BadRecording, Segment, check, place_of
from streams.recording.segment import ROWS, SCHEMA, Record, records_of
from streams.recording.store import JOURNAL, Place

log = logging.getLogger(__name__)
NEXT = ".next"
"""Of a merged segment that its journal already names, while its name may still be another's."""


def mend(root: Path, place: Place) -> list[Segment]:
    """The segments of a place, in offset order; its folder holds these and their journal alone.

    Raises OSError.
    """
    folder = root / place[0] / str(place[1])
    if not folder.is_dir():
        return []
    journal = folder / JOURNAL
    known: dict[str, Segment] = {}
    untidy = False
    if journal.exists():
        found, problems = store.read_journal(root, journal.relative_to(root).as_posix())
        known = {segment.name: segment for segment in found}
        untidy = bool(problems) or not journal.read_bytes().endswith(b"\n")
        for problem in problems:
            log.warning("%s: %s; written anew", problem.name, problem.why)
    for path in sorted(folder.iterdir()):
        name = path.relative_to(root).as_posix()
        if name.endswith(NEXT):
            _settle_merged(path, known.get(name.removesuffix(NEXT)))
        elif path.suffix == ".partial":
            path.unlink()
    for path in sorted(folder.glob("*.parquet")):
        name = path.relative_to(root).as_posix()
        if name not in known:
            segment = _adopted(path, name, list(known.values()))
            if segment is not None:
                known[name] = segment
                untidy = True
    segments = sorted(known.values(), key=lambda segment: segment.first)
    while segments and not (root / segments[0].name).exists():  # the bound took it, then a kill
        del segments[0]
        untidy = True
    if untidy:
        store.write_journal(root, place, segments)
    return segments


def _settle_merged(path: Path, wanted: Segment | None) -> None:
    """A merged segment takes its name when its journal names it; else the old ones still hold."""
    final = path.with_suffix("")
    if wanted is not None and _digest(path) == wanted.sha256:
        path.rename(final)
        store.sync_folder(path.parent)
    else:
        path.unlink()


def _adopted(path: Path, name: str, known: list[Segment]) -> Segment | None:
    """A file without a line: the segment it is, or None, and it is gone, when it is none."""
    segment = examined(path, name)
    overlaps = segment is not None and any(
        segment.first <= other.last and other.first <= segment.last for other in known
    )
    if segment is None or overlaps:
        log.warning("%s is %s: removed", name, "there twice" if overlaps else "no whole segment")
        path.unlink()
        return None
    log.info("%s was finished, but not noted: kept", name)
    return segment


def examined(path: Path, name: str) -> Segment | None:
    """What a file at a segment's path holds; None when it is not a whole segment."""
    place = place_of(name)
    if place is None:
        return None
    topic, partition, first = place
    ends: list[Record] = []
    records = raw_bytes = 0
    try:
        with path.open("rb") as file:
            parquet = pq.ParquetFile(file)
            if not parquet.schema_arrow.equals(SCHEMA):
                return None
            for batch in parquet.iter_batches(batch_size=ROWS, use_threads=False):
                for record in records_of(batch, topic, partition):
                    ends = [ends[0] if ends else record, record]
                    records += 1
                    raw_bytes += len(record.key or b"") + len(record.value or b"")
        if not ends or ends[0].offset != first:
            return None
        segment = Segment(
            topic, partition, first, ends[1].offset, records, ends[0].timestamp,
            ends[1].timestamp, path.stat().st_size, raw_bytes, _digest(path),
        )  # fmt: skip
        check(segment)
    except (OSError, pa.ArrowException, BadRecording):
        return None
    return segment


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
