"""A recording being written: what comes from the topics goes into segments, within the bound.

Called by `streams.recording.recorder`, from one thread at a time. Knows no Kafka. When the disk is
full a place falls back to its last finished segment (`next` says where to read again), and the
oldest segments make room.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from schemas.topics import BY_NAME
from streams.recording import bound, store
from streams.recording.asking import asked, done
from streams.recording.manifest import NAME, Gap, Manifest, Segment
from streams.recording.mend import mend
from streams.recording.merge import merge
from streams.recording.partial import Partial
from streams.recording.seen import REMOVED, Seen, offsets_missing
from streams.recording.store import Place

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SMALL_BYTES = 4 * 1024 * 1024
"""A segment with less in it (raw) waits for more, up to `QUIET` ages: files stay few."""
QUIET = 60
RETENTIONS = 4
"""No segment stays open longer than this part of its topic's retention: a kill loses nothing."""
HELD_BYTES = 96 * 1024 * 1024
"""Records of all open segments that may wait in memory for their row group."""
SHARE = 512
"""Segments are at most this part of the bound, for the newest of each place is never removed."""
SPARE = 50
"""This part of the bound is freed at once."""
SHARE_OF_FULL = 20
"""This part of a recording goes when the disk is full."""
LINE_BYTES = 400


@dataclass(frozen=True, slots=True)
class Sizes:
    """``max_bytes`` bounds the folder; a segment is finished at ``segment_bytes`` (raw), or after
    ``age_s`` if it is not small.
    """

    max_bytes: int
    segment_bytes: int
    age_s: float

    @property
    def full_bytes(self) -> int:
        """Raw bytes at which a segment is finished."""
        return min(self.segment_bytes, self.max_bytes // SHARE)


class Disk:
    """The folder ``root`` of a recording with this ``manifest``; form: `streams.recording.store`.

    ``removed``, ``fulls``, ``gaps``: segments that went for the bound, times that the disk was
    full, gaps noted; all since the start.
    """

    def __init__(
        self, root: Path, manifest: Manifest, sizes: Sizes, places: Iterable[Place]
    ) -> None:
        """Puts in order what a kill left. Raises OSError."""
        self.root, self.sizes = root, sizes
        self.removed = self.fulls = self.gaps = 0
        self.places: dict[Place, list[Segment]] = {}
        self.owed: dict[Place, int] = {}
        self._manifest = manifest
        self._seen = Seen(manifest)
        self._open: dict[Place, Partial] = {}
        self._next: dict[Place, int] = {}
        self._begins = store.read_begins(root)
        self._untidy: set[Place] = set()
        self._rewrite: set[Place] = set()
        self._said_small = False
        self._finished_bytes = 0
        for place in places:
            if place in self._begins:
                self._next[place], self.owed[place] = self._begins[place]
            self._mend(place)

    @property
    def manifest(self) -> Manifest:
        """As it is, or will be with the next segment, on disk."""
        return self._seen.of(self._manifest)

    @property
    def size_bytes(self) -> int:
        """All that lies on disk, about."""
        return self._finished_bytes + sum(each.size_bytes for each in self._open.values())

    def next(self, place: Place) -> int | None:
        """The offset to go on at; None for a place that has nothing yet."""
        return self._next.get(place)

    def nexts(self) -> dict[Place, int]:
        """`next` of every place that has one."""
        return dict(self._next)

    def begin(self, places: store.Begins) -> None:
        """Record new places from an offset on, each; what is missing from the other on is a gap.

        Raises OSError.
        """
        if places:
            self._begins |= places
            store.write_begins(self.root, self._begins)
        for place, (offset, owed) in places.items():
            self._next[place], self.owed[place] = offset, owed

    def skip(self, place: Place, offset: int, why: str) -> None:
        """Offsets up to ``offset`` cannot be had any more."""
        begin = max(self._next[place], self.owed[place])
        if offset > begin:
            self._gap(Gap(*place, begin, offset - 1, why))
        self._next[place] = max(offset, self._next[place])

    def take(self, batches: Mapping[Place, Sequence[Any]]) -> set[Place]:
        """Append records, finish what is due, keep the bound.

        Returns the places that are to be read again from `next`, since the disk was full; empty
        when all went well. Raises OSError of any other kind.
        """
        again: set[Place] = set()
        for place, records in batches.items():
            if not self._try(place, lambda p=place, r=records: self._append(p, r)):
                again.add(place)
        now_s = monotonic()
        for place, partial in list(self._open.items()):
            if self._due(place[0], partial, now_s) and not self.finish(place):
                again.add(place)
        self._flush_some(again)
        self._write_journals()
        if self.size_bytes > self.sizes.max_bytes:
            self._shrink(self.size_bytes - self.sizes.max_bytes + self.sizes.max_bytes // SPARE)
        if again:
            again |= self._make_room()
        return again

    def finish(self, place: Place) -> bool:
        """Finish the open segment of a place; False when the disk was full."""
        return self._try(place, lambda: self._finish(place))

    def finish_all(self) -> set[Place]:
        """Finish every open segment, and the manifest; see `take`."""
        again = self._finish_open()
        if again:
            self._shrink(self._more_bytes)
        return again

    def save(self) -> None:
        """The manifest is on disk before the segments that it speaks of."""
        if self._seen.news or not (self.root / NAME).exists():
            self._manifest = self._seen.of(self._manifest)
            store.write_manifest(self.root, self._manifest)
            self._seen.news = False

    def answer(self) -> set[Place]:
        """Finish all when somebody asked for it (`streams.recording.asking`); see `take`."""
        requests = asked(self.root)
        if not requests:
            return set()
        again = self.finish_all()
        done(requests)
        return again

    def _append(self, place: Place, records: Sequence[Any]) -> None:
        if place in self._untidy:
            self._mend(place)
        begin = self._next[place]
        fresh = [record for record in records if record.offset >= begin]
        if not fresh:
            return
        self._note_holes(place, begin, fresh)
        self._seen.look(place[0], fresh)
        partial = self._open.get(place)
        if partial is None:
            partial = self._open[place] = Partial(self.root, *place, monotonic())
        partial.write(fresh)
        self._next[place] = fresh[-1].offset + 1
        if partial.taken_bytes >= self.sizes.full_bytes:
            self._finish(place)

    def _note_holes(self, place: Place, begin: int, fresh: Sequence[Any]) -> None:
        """Compaction may have been faster: then offsets that we ought to have are not there."""
        begin = max(begin, self.owed.get(place, 0))
        missing = offsets_missing([r.offset for r in fresh if r.offset >= begin], begin)
        if missing is not None:
            self._gap(Gap(*place, *missing, REMOVED))

    def _gap(self, gap: Gap) -> None:
        if self._seen.gap(gap):
            self.gaps += 1
            log.warning("gap: %s/%d %d to %d: %s", *msgspec.structs.astuple(gap))

    def _finish(self, place: Place) -> None:
        partial = self._open.get(place)
        if partial is None:
            return
        self.save()
        segment = partial.finish()
        del self._open[place]
        self._hold(place, [*self.places.get(place, ()), segment])

    def _due(self, topic: str, partial: Partial, now_s: float) -> bool:
        age_s = now_s - partial.opened_s
        if age_s >= self.sizes.age_s and partial.taken_bytes >= SMALL_BYTES:
            return True
        kept_s = BY_NAME[topic].retention_ms / 1000 / RETENTIONS
        return age_s >= min(self.sizes.age_s * QUIET, kept_s)

    def _flush_some(self, again: set[Place]) -> None:
        """Bound the memory: the largest row groups that wait go into their files."""
        held = sum(partial.held_bytes for partial in self._open.values())
        if held <= HELD_BYTES:
            return
        for place, partial in sorted(self._open.items(), key=lambda each: -each[1].held_bytes):
            if held <= HELD_BYTES // 2:
                return
            held -= partial.held_bytes
            if not self._try(place, partial.flush):
                again.add(place)

    def _try(self, place: Place | None, work: Any) -> bool:
        """Do it; False when the disk was full, and the place is back at its last segment."""
        try:
            work()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.fulls += 1
            log.warning("no room in %s (%s): the oldest goes", self.root, error.strerror)
            if place is not None:
                self._fall_back(place)
            return False
        return True

    def _fall_back(self, place: Place) -> None:
        """Back to the last finished segment; what is in the folder beyond it is looked at again."""
        partial = self._open.pop(place, None)
        if partial is not None:
            partial.abandon()
        self._untidy.add(place)
        segments = self.places.get(place)
        self._next[place] = segments[-1].last + 1 if segments else self._begins[place][0]

    def _mend(self, place: Place) -> None:
        segments = mend(self.root, place)
        self._untidy.discard(place)
        if segments:
            self._hold(place, segments)
            self._next[place] = segments[-1].last + 1
            self.owed.setdefault(place, segments[0].first)

    def _make_room(self) -> set[Place]:
        """The disk is full: save what can be saved, and let the oldest go."""
        again = self._finish_open()
        self._shrink(self._more_bytes)
        return again

    def _finish_open(self) -> set[Place]:
        again = {place for place in list(self._open) if not self.finish(place)}
        self._try(None, self.save)
        return again

    @property
    def _more_bytes(self) -> int:
        """What to free when the disk is full."""
        return max(self.size_bytes // SHARE_OF_FULL, self.sizes.full_bytes)

    def _shrink(self, excess_bytes: int) -> None:
        """Remove segments; first facts that newer ones have replaced."""
        before = self.size_bytes
        for place, old in bound.mergeable(self.places).items():
            self._try(None, lambda p=place, o=old: self._merge(p, o))
        going = bound.removable(self.places, excess_bytes - (before - self.size_bytes))
        for segment in going:
            (self.root / segment.name).unlink(missing_ok=True)
        self.removed += len(going)
        gone = {segment.name for segment in going}
        for place in {(segment.topic, segment.partition) for segment in going}:
            self._hold(place, [each for each in self.places[place] if each.name not in gone])
            self._rewrite.add(place)
        self._write_journals()
        self._say_small(before - self.size_bytes < excess_bytes)

    def _merge(self, place: Place, old: list[Segment]) -> None:
        self._hold(place, merge(self.root, self._manifest, place, self.places[place], old))

    def _hold(self, place: Place, segments: list[Segment]) -> None:
        """These are the segments of a place now."""
        self._finished_bytes += _bytes(segments) - _bytes(self.places.get(place, ()))
        self.places[place] = segments

    def _write_journals(self) -> None:
        """After the files have gone: that needs room itself. `mend` does it after a kill."""
        for place in tuple(self._rewrite):
            if self._try(None, lambda p=place: self._write_journal(p)):
                self._rewrite.discard(place)

    def _write_journal(self, place: Place) -> None:
        store.write_journal(self.root, place, self.places[place])

    def _say_small(self, small: bool) -> None:
        if small and not self._said_small:
            log.warning(
                "no more can be removed: what is left is needed to replay it, or is the newest; "
                "raise --max-bytes (%d)", self.sizes.max_bytes,
            )  # fmt: skip
        self._said_small = small


def _bytes(segments: Sequence[Segment]) -> int:
    """With their lines in the journal."""
    return sum(each.size_bytes for each in segments) + LINE_BYTES * len(segments)
