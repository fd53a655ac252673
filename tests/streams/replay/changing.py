"""The same recording with something else in it: what a replay has to notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from streams.recording import Manifest, Recording
from streams.recording.pack import pack
from streams.recording.segment import Record

Change = Callable[[list[Record]], list[Record]]


def changed(
    recording: Recording, path: Path, changes: dict[tuple[str, int], Change],
    manifest: Manifest | None = None,
) -> Path:  # fmt: skip
    """A bundle with each place as its change makes it; an empty place is left out."""
    places = {}
    for place in {*recording.places, *changes}:
        records = list(recording.records(*place))
        records = changes[place](records) if place in changes else records
        if records:
            places[place] = records
    pack(path, msgspec.structs.replace(manifest or recording.manifest, segments=()), places)
    return path


def valued(record: Record, value: bytes | None) -> Record:
    return Record(
        record.topic, record.partition, record.offset, record.timestamp, record.key, value,
        record.headers,
    )  # fmt: skip


def behind(record: Record, offset: int) -> Record:
    """The record said once more, at another offset."""
    return Record(
        record.topic, record.partition, offset, record.timestamp, record.key, record.value,
        record.headers,
    )  # fmt: skip
