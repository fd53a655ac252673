"""What a recording says of itself: where it comes from, and each segment with its checksum.

`manifest.json` of a bundle is a `Manifest` whole; a recording keeps it without segments, and one
line of JSON a segment beside the segments (`streams.recording.store`).
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from schemas.topics import BY_NAME

FORMAT = 1
"""Raised by a change that an older reader would misunderstand."""
NAME = "manifest.json"
MAX_PARTITIONS, MAX_OFFSET = 100_000, 1 << 63
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: what calendars know."""
_SEGMENT = re.compile(r"([a-z-]{1,40})/(\d{1,5})/(\d{20})\.parquet")


class BadRecording(Exception):
    """Not a recording, or nothing in it can be used; the message says why and what to do."""

    says_what_to_do = True


class Problem(msgspec.Struct, frozen=True):
    """A part that cannot be used; everything else can. ``name``: the segment's, or what it is."""

    name: str
    why: str


class Segment(msgspec.Struct, frozen=True):
    """Records of one partition of one topic, in offset order; one Parquet file.

    ``topic`` is the name in the topic table. Offsets are inclusive; compaction and retention may
    have left holes between them. ``raw_bytes``: keys and values as they were on the topic.
    """

    topic: str
    partition: int
    first: int
    last: int
    records: int
    first_ms: int  # append time
    last_ms: int
    size_bytes: int
    raw_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """Its path below the root; derived, so that no manifest can point elsewhere."""
        return f"{self.topic}/{self.partition}/{self.first:020d}.parquet"


class Gap(msgspec.Struct, frozen=True):
    """Offsets that the recorder did not get: retention was faster, or the disk was full."""

    topic: str
    partition: int
    first: int
    last: int
    why: str


class Start(msgspec.Struct, frozen=True):
    """Where one partition of `samples` begins in a bundle: its image, or the log's beginning.

    ``at``: the last offset that the image holds; -1: folded from the beginning of the log.
    """

    partition: int
    at: int


class Cut(msgspec.Struct, frozen=True):
    """What a bundle was cut to; outputs before ``from_ms`` are there to begin from."""

    from_ms: int
    to_ms: int
    nodes: tuple[str, ...] = ()  # that were asked for; the whole partitions of these are there
    workloads: tuple[str, ...] = ()
    starts: tuple[Start, ...] = ()


class Manifest(msgspec.Struct, frozen=True):
    """The facts about a recording; ``law_versions`` and ``policies`` (digests) as seen in it."""

    kind: Literal["recording", "bundle"]
    prefix: str
    incarnation: int
    partitions: int  # of `samples` in the installation
    software: str
    schema_version: int
    made_ms: int  # wall time, shown only
    law_versions: tuple[int, ...] = ()
    policies: tuple[str, ...] = ()
    cut: Cut | None = None
    pseudonymised: bool = False
    gaps: tuple[Gap, ...] = ()
    segments: tuple[Segment, ...] = ()
    format: int = FORMAT


class _Format(msgspec.Struct):
    """All that a reader of another format is sure to understand."""

    format: int | float | str | None = None


def read(raw: bytes) -> Manifest:
    """A manifest from JSON. Raises BadRecording."""
    try:
        version = msgspec.json.decode(raw, type=_Format).format
        if isinstance(version, int) and version > FORMAT:
            raise BadRecording(
                f"{NAME} is of format {version}, this version reads up to {FORMAT}: upgrade"
            )
        found = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecording(f"{NAME} cannot be read: {error}"[:300]) from None
    times = (found.made_ms, *((found.cut.from_ms, found.cut.to_ms) if found.cut else ()))
    fine = 0 < found.partitions <= MAX_PARTITIONS and 0 <= found.incarnation < MAX_OFFSET
    if not fine or not all(0 <= each <= LAST_MS for each in times):
        raise BadRecording(f"{NAME} says of partitions, incarnation or times what cannot be")
    for segment in found.segments:
        check(segment)
    return found


def check(segment: Segment) -> None:
    """Raise BadRecording for a segment that cannot be."""
    fine = (
        segment.topic in BY_NAME
        and 0 <= segment.partition < MAX_PARTITIONS
        and 0 <= segment.first <= segment.last < MAX_OFFSET
        and 0 < segment.records <= segment.last - segment.first + 1
        and 0 <= segment.first_ms <= LAST_MS
        and 0 <= segment.last_ms <= LAST_MS
        and 0 < segment.size_bytes < MAX_OFFSET
        and segment.raw_bytes >= 0
    )
    if not fine:
        raise BadRecording(f"{NAME} lists a segment that cannot be: {segment.name[:100]!r}")


def place_of(name: str) -> tuple[str, int, int] | None:
    """Topic, partition and first offset of a segment's path; None for any other name."""
    found = _SEGMENT.fullmatch(name)
    if found is None or found[1] not in BY_NAME:
        return None
    return found[1], int(found[2]), int(found[3])
