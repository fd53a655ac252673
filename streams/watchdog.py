"""Judges progress: "still consuming, no error" is the commonest failure of such workers.

Run by `streams.worker`; `streams.health` serves the verdict. What counts is the image and the
offset folded against the end of the log, never what a client library believes of itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sight:
    """One partition at one look. ``end``: end offset of its log. ``stopped``: a bug ended it."""

    next: int
    end: int
    image_at: int
    stopped: bool = False


@dataclass(slots=True)
class _Mark:
    next: int
    next_since: float
    image_at: int
    image_since: float


class Watchdog:
    """``look`` every few seconds; `why` is "" while all is well."""

    def __init__(self, stall_after_s: float, image_within_s: float) -> None:
        self._stall_after_s = stall_after_s
        self._image_within_s = image_within_s
        self._marks: dict[int, _Mark] = {}
        self._failing_since: float | None = None
        self.why = ""

    def look(self, now: float, sights: dict[int, Sight]) -> None:
        """Judge what is seen at ``now`` (monotonic seconds). Partitions not named are forgotten."""
        for partition in self._marks.keys() - sights.keys():
            del self._marks[partition]
        found = ""
        for partition, sight in sorted(sights.items()):
            mark = self._marks.get(partition)
            if mark is None:
                mark = _Mark(sight.next, now, sight.image_at, now)
                self._marks[partition] = mark
            if sight.next != mark.next or sight.end <= sight.next:
                mark.next, mark.next_since = sight.next, now
            if sight.image_at != mark.image_at or sight.image_at + 1 >= sight.next:
                mark.image_at, mark.image_since = sight.image_at, now
            found = found or self._fault(partition, sight, mark, now)
        self.why = found
        if not found:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = now

    def pause(self, now: float) -> None:
        """The broker cannot be asked: time does not count."""
        for mark in self._marks.values():
            mark.next_since = mark.image_since = now

    def failing_s(self, now: float) -> float:
        """For how long it has been failing."""
        return 0.0 if self._failing_since is None else now - self._failing_since

    def _fault(self, partition: int, sight: Sight, mark: _Mark, now: float) -> str:
        if sight.stopped:
            return f"partition {partition} was stopped by a bug after offset {sight.next - 1}"
        stalled = now - mark.next_since
        if stalled >= self._stall_after_s:
            return (
                f"partition {partition} stands at {sight.next} for {stalled:.0f} s "
                f"with {sight.end - sight.next} records behind"
            )
        old = now - mark.image_since
        if old >= self._image_within_s:
            return f"partition {partition} has had no new image for {old:.0f} s"
        return ""
