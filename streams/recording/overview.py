"""What a recording holds, topic by topic: offsets, times, bytes, gaps.

Shown by `slackwater record status`; knows no broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.topics import BY_NAME
from streams.recording.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Held:
    """One topic in a recording, all partitions together; times are append times.

    ``lag``: records that the broker has beyond what is recorded; None: not asked.
    """

    topic: str
    partitions: int
    segments: int
    records: int
    size_bytes: int
    first_ms: int
    last_ms: int
    gaps: int
    lag: int | None = None


def held(manifest: Manifest, lags: Mapping[str, int] | None = None) -> list[Held]:
    """A line for each topic that has segments, in the order of the topic table."""
    lines = []
    for name in BY_NAME:
        segments = [each for each in manifest.segments if each.topic == name]
        if not segments:
            continue
        lines.append(
            Held(
                topic=name,
                partitions=len({each.partition for each in segments}),
                segments=len(segments),
                records=sum(each.records for each in segments),
                size_bytes=sum(each.size_bytes for each in segments),
                first_ms=min(each.first_ms for each in segments),
                last_ms=max(each.last_ms for each in segments),
                gaps=sum(gap.topic == name for gap in manifest.gaps),
                lag=None if lags is None else lags.get(name),
            )
        )
    return lines


def next_offsets(manifest: Manifest) -> dict[tuple[str, int], int]:
    """For each (topic, partition) the offset behind its newest segment."""
    found: dict[tuple[str, int], int] = {}
    for each in manifest.segments:
        place = each.topic, each.partition
        found[place] = max(found.get(place, 0), each.last + 1)
    return found
