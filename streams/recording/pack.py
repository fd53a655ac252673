"""Writing a bundle from records: segments one partition after the other, and their manifest.

Called by the cut and by tests.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import msgspec

from streams.recording.container import write_bundle
from streams.recording.manifest import BadRecording, Manifest, Segment
from streams.recording.segment import Consumed, Writer

SEGMENT_RECORDS = 50_000
"""A damaged byte costs one segment."""
SEGMENT_BYTES = 64 * 1024 * 1024
Place = tuple[str, int]


def pack(path: Path, manifest: Manifest, places: Mapping[Place, Iterable[Consumed]]) -> Manifest:
    """Write a bundle with these records, offset order in each place; returns its manifest.

    Raises BadRecording when there is nothing to write, OSError when it cannot be written.
    """
    with ExitStack() as open_files:
        written: list[tuple[Segment, IO[bytes]]] = []
        for (topic, partition), records in sorted(places.items()):
            written += _segments(topic, partition, records, path.parent, open_files)
        if not written:
            raise BadRecording("there is nothing to put into the bundle: no record fits")
        whole = msgspec.structs.replace(
            manifest, kind="bundle", segments=tuple(segment for segment, _ in written)
        )
        raw = msgspec.json.format(msgspec.json.encode(whole), indent=1)
        write_bundle(path, raw, ((segment.name, file) for segment, file in written))
    return whole


def _segments(
    topic: str, partition: int, records: Iterable[Consumed], folder: Path, open_files: ExitStack
) -> list[tuple[Segment, IO[bytes]]]:
    """Records of one partition in segments, each in a nameless file beside the bundle."""
    written: list[tuple[Segment, IO[bytes]]] = []
    writer: Writer | None = None
    file: IO[bytes] | None = None
    count = size = 0
    for record in records:
        if writer is None:
            file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by the stack
            open_files.enter_context(file)
            writer, count, size = Writer(topic, partition, file), 0, 0
        writer.write((record,))
        count += 1
        size += len(record.value or b"")
        if count >= SEGMENT_RECORDS or size >= SEGMENT_BYTES:
            assert file is not None
            written.append((writer.close(), file))
            writer = None
    if writer is not None:
        assert file is not None
        written.append((writer.close(), file))
    return written
