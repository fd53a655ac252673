"""Reading what a question needs from a recording; see `streams.explain.read`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from schemas.topics import BY_NAME
from streams.explain.acts import Folded
from streams.explain.past import KNOWN, Past
from streams.explain.read import LATE_MS, TOPICS, Span, before
from streams.intake import Check
from streams.recording import Recording
from streams.recording.tables import read as decoded


def of_recording(
    recording: Recording,
    span: Span,
    topics: Iterable[str] = TOPICS,
    check: Check | None = None,
    reading: Callable[[str], None] = lambda topic: None,  # noqa: ARG005
) -> tuple[Past, Folded]:
    """What a recording holds of it, in these topics; ``reading`` hears of each, "" at the end."""
    past = Past(span.at_ms, check)
    for topic in topics:
        reading(topic)
        for record in _recorded(recording, topic, span):
            past.note(topic, record)
    acts = Folded(past)
    if acts.nodes:
        reading("samples")
        within = decoded.Span(before(span.from_ms), span.at_ms + 1, acts.nodes)
        for record in decoded.records_of(recording, "samples", within, keyed=True):
            acts.note(record)
    acts.settle()
    reading("")
    return past, acts


def _recorded(recording: Recording, topic: str, span: Span) -> Iterator[Any]:
    within = decoded.Span(span.begin_ms(topic), span.at_ms + LATE_MS)
    for record in decoded.records_of(recording, topic, within):
        partitioned = BY_NAME[topic].partitioned and topic not in KNOWN
        if partitioned and span.partition not in (None, record.partition):
            continue
        if span.wants(topic, record.key):
            yield record
