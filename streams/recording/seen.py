"""What a recorder learns from the records it writes: law versions, policies, gaps.

Used by `streams.recording.disk`, which puts it into the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from schemas import codec
from schemas.errors import BadRecord
from schemas.records import INSTALLATION_KEY, Installation, PolicyRecord, Tick
from streams.recording.manifest import BadRecording, Gap, Manifest

REMOVED = "some or all were removed before they were read"


class Seen:
    """``news``: something has been seen since the caller last cleared it."""

    def __init__(self, manifest: Manifest) -> None:
        self.news = False
        self._incarnation = manifest.incarnation
        self._laws = dict.fromkeys(manifest.law_versions)
        self._policies = dict.fromkeys(manifest.policies)
        self._before = list(manifest.gaps)
        self._gaps: list[Gap] = []  # of this run

    def of(self, manifest: Manifest) -> Manifest:
        """A manifest that says it."""
        return msgspec.structs.replace(
            manifest,
            law_versions=tuple(sorted(self._laws)),
            policies=tuple(self._policies),
            gaps=(*self._before, *self._gaps),
        )

    def look(self, topic: str, records: Iterable[Any]) -> None:
        """Note what records of a topic tell; what cannot be read tells nothing.

        Raises BadRecording when the topics were made anew.
        """
        if topic == "samples":
            for record in records:
                if record.key is None and record.value is not None:
                    self._tick(record)
        elif topic == "policies":
            for record in records:
                self._policy(record)
        elif topic == "fleet":
            for record in records:
                if record.key == INSTALLATION_KEY and record.value is not None:
                    self._installation(record)

    def gap(self, gap: Gap) -> bool:
        """Note offsets that could not be had; False when that is known already.

        Holes that compaction left in one place become one gap: they may be thousands.
        """
        for i, other in enumerate(self._gaps):
            same = (other.topic, other.partition, other.why) == (gap.topic, gap.partition, gap.why)
            touches = gap.first <= other.last + 1 and other.first <= gap.last + 1
            if same and (touches or gap.why == REMOVED):
                whole = msgspec.structs.replace(
                    other, first=min(other.first, gap.first), last=max(other.last, gap.last)
                )
                if whole == other:
                    return False
                self._gaps[i] = whole
                self.news = True
                return True
        self._gaps.append(gap)
        self.news = True
        return True

    def _tick(self, record: Any) -> None:
        try:
            law = codec.decode(Tick, record.value).law_version
        except BadRecord:
            return
        self._note(self._laws, law)

    def _policy(self, record: Any) -> None:
        if record.value is None:
            return
        try:
            digest = codec.decode(PolicyRecord, record.value).digest
        except BadRecord:
            return
        self._note(self._policies, digest)

    def _note(self, known: dict[Any, None], one: Any) -> None:
        if one not in known:
            known[one] = None
            self.news = True

    def _installation(self, record: Any) -> None:
        try:
            found = codec.decode(Installation, record.value).incarnation
        except BadRecord:
            return
        if found > self._incarnation:
            raise other_incarnation(found, self._incarnation)


def other_incarnation(found: int, ours: int) -> BadRecording:
    """The error for topics that are not those a folder was begun with."""
    return BadRecording(
        f"the topics were made anew (incarnation {found}, this recording is of {ours}): offsets "
        "begin again there, so record into another folder"
    )


def offsets_missing(offsets: Sequence[int], begin: int) -> tuple[int, int] | None:
    """First and last offset missing in rising ``offsets`` from ``begin`` on; None: none is."""
    if not offsets or offsets[-1] - begin + 1 == len(offsets):
        return None
    there = set(offsets)
    missing = [offset for offset in range(begin, offsets[-1]) if offset not in there]
    return missing[0], missing[-1]
