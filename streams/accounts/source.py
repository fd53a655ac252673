"""Which part of a recording, or of a cluster's topics, an account reads.

What holds until it is replaced is read from the beginning, the rest from a little before the
account's time.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.accounts.cells import Span
from streams.recording import Manifest
from streams.recording.segment import Record
from streams.recording.source import Source

STATE = ("policies", "inventory", "capacity", "ledger", "jobs", "dead-letters")
"""What was said before the account's time still holds in it."""
BEFORE_MS = 600_000
"""Of the others so much is read before it: counters to compare with, orders that are answered."""


def records_from(source: Source, topic: str, partition: int, from_ms: int) -> Iterator[Record]:
    """Records of one partition in offset order; at least all that an account from then on needs."""
    above = -1
    if topic not in STATE:
        above = source.since(topic, partition, from_ms - BEFORE_MS) - 1
    return source.records(topic, partition, above)


def first_ms(source: Source) -> int | None:
    """When the oldest sample was appended that there is; None without any."""
    firsts = (next(source.records("samples", n), None) for n in source.partitions("samples"))
    return min((record.timestamp for record in firsts if record is not None), default=None)


def span_of(manifest: Manifest) -> Span:
    """The time of a recording: that of its samples, within the cut's."""
    spans = [(s.first_ms, s.last_ms) for s in manifest.segments if s.topic == "samples"]
    spans = spans or [(s.first_ms, s.last_ms) for s in manifest.segments] or [(0, 0)]
    span = Span(min(first for first, _ in spans), max(last for _, last in spans))
    if manifest.cut is not None:
        span.from_ms = max(span.from_ms, manifest.cut.from_ms)
        span.to_ms = min(span.to_ms, manifest.cut.to_ms)
    return span
