"""Where records of the past come from: an opened recording, or the topics of a cluster.

`streams.recording.Recording` is one, `streams.replay.topics.TopicSource` the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from streams.recording.manifest import Manifest
from streams.recording.segment import Record


class Source(Protocol):
    """Records by topic (its name in the table), partition and offset."""

    @property
    def manifest(self) -> Manifest: ...

    def partitions(self, topic: str = "samples") -> tuple[int, ...]:
        """The partitions of a topic that have records, sorted."""

    def records(
        self, topic: str, partition: int, above: int = -1, upto: int | None = None
    ) -> Iterator[Record]:
        """Records with offsets in (above, upto], in order."""

    def last(self, topic: str, partition: int) -> int:
        """The highest offset there is; -1 for none."""

    def since(self, topic: str, partition: int, ms: int) -> int:
        """An offset that is not above any record appended at ``ms`` or later; near the first."""

    def fault(self, topic: str, partition: int, above: int, upto: int) -> str:
        """Why records in (above, upto] are known to be lost; "" when none is."""
