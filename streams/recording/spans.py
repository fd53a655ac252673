"""The span of one partition of `samples` that a cut takes: from a start to the closing tick."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas import codec, topics
from schemas.errors import BadRecord
from schemas.records import Tick
from streams.moments import shown
from streams.recording.segment import Record
from streams.recording.source import Source
from streams.recording.starts import Image, images_of, vector_of

LOOK_BACK_MS = 900_000
"""An image so much older than the time asked for is looked for first; then any."""


@dataclass(slots=True)
class Span:
    """Samples in (`at` or `first` - 1, `last`]; ``at`` None: there is nothing to begin from.

    ``side`` and ``upto``: the side vector of the start, and the largest of the span's ticks.
    """

    partition: int
    first: int  # offset
    first_ms: int
    at: int | None = None
    image: Image | None = None
    last: int = -1
    last_ms: int = 0
    side: dict[str, int] = field(default_factory=dict)
    upto: dict[str, int] = field(default_factory=dict)
    laws: set[int] = field(default_factory=set)
    nodes: set[bytes] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def begin(self) -> int:
        """The offset above which samples are taken."""
        return self.first - 1 if self.at is None else self.at


def span_of(source: Source, partition: int, from_ms: int, to_ms: int) -> Span | None:
    """The span of a partition; None when nothing was sampled in that time."""
    first = _first(source, partition, from_ms)
    if first is None or first.timestamp > to_ms:
        return None
    span = Span(partition, first.offset, first.timestamp)
    _start(source, span)
    for record in source.records("samples", partition, span.begin):
        if record.offset == span.begin + 1:
            span.first_ms = min(span.first_ms, record.timestamp)
        span.last, span.last_ms = record.offset, max(span.last_ms, record.timestamp)
        tick = _tick(record)
        if tick is None:
            if record.key:
                span.nodes.add(record.key)
            continue
        span.laws.add(tick.law_version)
        for name, offset in tick.side.items():
            span.upto[name] = max(span.upto.get(name, -1), offset)
        if record.timestamp >= to_ms:
            break
    return span


def _first(source: Source, partition: int, from_ms: int) -> Record | None:
    begin = above(source, "samples", partition, from_ms)
    for record in source.records("samples", partition, begin):
        if record.timestamp >= from_ms:
            return record
    return None


def _start(source: Source, span: Span) -> None:
    """The newest image below the first sample; else the log's beginning; else a later image."""
    partition = span.partition
    head = next(iter(source.records("samples", partition)), None)
    oldest = span.first if head is None else head.offset
    near = above(source, "images", partition, span.first_ms - LOOK_BACK_MS)
    images: list[Image] = []
    for begin in (near, -1) if near >= 0 else (-1,):
        images = [each for each in images_of(source, partition, begin) if each.at + 1 >= oldest]
        for image in reversed(images):
            if image.at < span.first and _begin_from(source, span, image):
                return
    if oldest == 0:
        span.at = -1
        return
    for image in images:
        if image.at >= span.first and _begin_from(source, span, image):
            span.notes.append(
                f"partition {partition}: no image from before {shown(span.first_ms)}; it begins "
                f"{image.at + 1 - span.first} records later, where the first image lies"
            )
            return
    span.notes.append(
        f"partition {partition}: no image to begin from; it can be read, but not replayed"
    )


def _begin_from(source: Source, span: Span, image: Image) -> bool:
    vector = vector_of(source, span.partition, image)
    if vector is None:
        return False
    span.at, span.image, span.side = image.at, image, vector
    span.upto = dict(vector)
    return True


def _tick(record: Record) -> Tick | None:
    if record.key or record.value is None:
        return None
    try:
        if codec.encoding_of(record.headers) == codec.ENC_TICK:
            return codec.parse_tick(record.value, record.partition)
    except BadRecord:
        pass
    return None


def above(source: Source, topic: str, partition: int, at_ms: int) -> int:
    """An offset at and below which everything is older than ``at_ms``."""
    return source.since(topic, partition, at_ms) - 1


def side_label(topic: str, partition: int) -> tuple[str, int]:
    """The name in a tick's vector, and the partition, of a partition's side topic."""
    number = partition if topics.BY_NAME[topic].partitioned else 0
    return f"{topic}/{number}", number
