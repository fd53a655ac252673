"""Which segments may go when a recording has grown to its bound; pure.

Called by `streams.recording.disk`. The oldest go first, by append time over all topics, so that
what is kept covers one stretch of time. But what is kept must replay: from the oldest samples kept
on, a partition needs the images and the side records of that time. What was admitted before is
inside the image. Facts (inventory, ledger, fleet) are wanted beyond that, by name: of these the
newest of each key stays (`streams.recording.merge`), and the history of policies whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from schemas.topics import BY_NAME
from streams.recording.manifest import Segment
from streams.recording.store import Place

SKEW_MS = 120_000
"""Brokers' clocks differ, and workers admit side records later than those were appended."""
HISTORY = "policies"
"""Small, and the answer to who changed what: never removed."""
MANY = 16
"""So many old segments of a topic of facts are worth a merge, whatever their size."""


def is_facts(topic: str) -> bool:
    """Whether the newest record of each key matters for good."""
    row = BY_NAME[topic]
    return row.side and row.compacted and topic != HISTORY


def removable(places: Mapping[Place, Sequence[Segment]], excess_bytes: int) -> list[Segment]:
    """Segments to remove, at least ``excess_bytes`` together; fewer where the rest is needed.

    ``places`` has each one's segments in offset order. The newest of each place stays: it says
    where to go on.
    """
    kept_from = {p: 0 for topic, p in places if topic == "samples"}
    candidates = [
        segment
        for (topic, _), segments in places.items()
        if topic != HISTORY and not is_facts(topic)
        for segment in segments[:-1]
    ]
    candidates.sort(key=lambda each: (each.last_ms, each.topic, each.partition, each.first))

    def needed(segment: Segment) -> bool:
        since_ms = _replays_from_ms(places, segment.partition, kept_from)
        return _with_samples(segment.topic) and segment.last_ms >= since_ms

    going: list[Segment] = []
    freed = 0
    waiting: dict[int, list[Segment]] = defaultdict(list)
    for segment in candidates:
        if freed >= excess_bytes:
            break
        if needed(segment):
            waiting[segment.partition].append(segment)
            continue
        leaving = [segment]
        if segment.topic == "samples":
            kept_from[segment.partition] += 1
            older = waiting.pop(segment.partition, [])
            leaving += [each for each in older if not needed(each)]
            waiting[segment.partition] = [each for each in older if needed(each)]
        going += leaving
        freed += sum(each.size_bytes for each in leaving)
    return going


def mergeable(places: Mapping[Place, Sequence[Segment]]) -> dict[Place, list[Segment]]:
    """Old segments of facts that are worth one: what they say is in the images that are kept."""
    firsts = {p: 0 for topic, p in places if topic == "samples"}
    found: dict[Place, list[Segment]] = {}
    for place, segments in places.items():
        topic, partition = place
        if not is_facts(topic):
            continue
        of = [partition] if BY_NAME[topic].partitioned else sorted(firsts)
        since_ms = min((_replays_from_ms(places, p, firsts) for p in of), default=0)
        old = [each for each in segments[:-1] if each.last_ms < since_ms]
        size = sum(each.size_bytes for each in old)
        if len(old) >= MANY or (len(old) > 1 and size > 2 * old[0].size_bytes):
            found[place] = old
    return found


def _with_samples(topic: str) -> bool:
    """Whether replay of a partition's samples reads it."""
    return topic == "images" or BY_NAME[topic].side


def _replays_from_ms(
    places: Mapping[Place, Sequence[Segment]], partition: int, kept_from: Mapping[int, int]
) -> int:
    """What was appended before this no sample that is kept can need."""
    samples = places.get(("samples", partition), ())
    first = kept_from.get(partition, 0)
    return samples[first].first_ms - SKEW_MS if first < len(samples) else 1 << 62
