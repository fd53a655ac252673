"""Side records as the ticks of a recorded log admitted them: read ahead, dropped once applied.

The engine's `Side` in `streams.replay.fold`. Holds what lies between two ticks, never a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from agents.log import SideRecord
from schemas import topics
from schemas.errors import BadRecord
from schemas.records import PolicyRecord
from streams.recording.segment import Record
from streams.recording.source import Source
from streams.replay.errors import CannotReplay
from streams.side_inputs import SideLog

POLICIES = "policies/0"
Decode = Callable[[Record], SideRecord | None]
"""A side record; None for a key that no partition needs. Raises BadRecord."""


class RecordedSide:
    """The side inputs of one partition. ``ended``: why the last tick could not be admitted."""

    def __init__(
        self, source: Source, partition: int, decode: Decode, policy: PolicyRecord | None = None,
        reshape: Callable[[SideRecord], SideRecord | None] | None = None,
    ) -> None:  # fmt: skip
        """``policy`` stands in place of every record of topic `policies`; what ``reshape`` makes of
        a record, in the place of each; None: nothing.
        """
        self._reshape = reshape
        self._source = source
        self._decode = decode
        self._policy = policy
        self._places = {
            f"{name}/{number}": _Place(source, SideLog(name, number), partition, decode)
            for name in topics.SIDE_TOPICS
            for number in (partition if topics.BY_NAME[name].partitioned else 0,)
        }
        self.ended = ""
        self.failure: CannotReplay | None = None

    def admit(
        self, partition: int, applied: Mapping[str, int], tick: Mapping[str, int]
    ) -> tuple[SideRecord, ...] | None:
        """Records in (applied, tick]; None when the recording does not have them, see `ended`."""
        del partition
        found: list[SideRecord] = []
        for label, upto in tick.items():
            place, above = self._places.get(label), applied.get(label, -1)
            if place is None or upto <= above:
                continue
            if label == POLICIES and self._policy is not None:
                key = self._policy.name.encode()
                found.append(SideRecord("policies", 0, upto, key, self._policy))
                continue
            try:
                records = place.between(above, upto)
            except CannotReplay as error:
                self.failure = error
                return None
            if records is None:
                self.ended = f"a tick admits {label} up to {upto}, which was not recorded any more"
                return None
            found += records
        found.sort(key=lambda record: (record.topic, record.partition, record.offset))
        if self._reshape is not None:
            return tuple(filter(None, map(self._reshape, found)))
        return tuple(found)

    def applied(self, partition: int, vector: Mapping[str, int]) -> None:
        """What has been applied is dropped."""
        for label, place in self._places.items():
            place.log.wanted[partition] = vector.get(label, -1)
            place.log.trim()


class _Place:
    """One side topic's partition: a reader, and what it read beyond what is applied."""

    def __init__(self, source: Source, log: SideLog, owner: int, decode: Decode) -> None:
        self.log = log
        self._source = source
        self._owner = owner
        self._decode = decode
        self._reader: Iterator[Record] | None = None
        self._next: Record | None = None

    def between(self, above: int, upto: int) -> list[SideRecord] | None:
        """Records in (above, upto]; None when the source ends before. Raises CannotReplay."""
        log = self.log
        if self._source.last(log.topic, log.partition) < upto:
            return None
        lost = self._source.fault(log.topic, log.partition, above, upto)
        if lost:
            raise CannotReplay(
                f"a tick of partition {self._owner} admits {log.name} up to {upto}, but {lost}: "
                "replay from a later time, or ask for the file again"
            )
        if self._reader is None:
            self._reader = self._source.records(log.topic, log.partition, above)
            self._next = next(self._reader, None)
        while self._next is not None and self._next.offset <= upto:
            try:
                decoded = self._decode(self._next)
            except BadRecord:
                decoded = None  # dead-lettered then, by whoever read it
            if decoded is not None:
                log.put(decoded)
            self._next = next(self._reader, None)
        return log.between(above, upto)
