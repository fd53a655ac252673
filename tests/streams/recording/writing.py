"""A recording on disk that is fed by hand, and stopped at any moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streams.recording import open_recording
from streams.recording.disk import Disk, Sizes
from streams.recording.manifest import Manifest
from streams.recording.segment import Record
from streams.recording.store import Place

HEADERS = (("enc", b"json"), ("v", b"1"))
MANIFEST = Manifest("recording", "slackwater.", 7, 2, "test", 1, 0)
Log = Mapping[Place, list[Record]]


class Killed(BaseException):
    """As kill -9: nothing of ours runs any more."""


def log_of(places: Mapping[Place, int], value_bytes: int = 300, every_ms: int = 1_000) -> Log:
    """So many records a place, one key in five the same; values that do not compress."""
    random = Random(20_261_130)
    return {
        (topic, partition): [
            Record(
                topic, partition, i, 1_000_000 + i * every_ms, b"node-%d" % (i % 5),
                random.randbytes(value_bytes), HEADERS,
            )
            for i in range(count)
        ]
        for (topic, partition), count in places.items()
    }  # fmt: skip


def opened(root: Path, log: Log, sizes: Sizes) -> Disk:
    """As the recorder opens it, for topics that begin at 0."""
    root.mkdir(exist_ok=True)
    disk = Disk(root, MANIFEST, sizes, log)
    disk.save()
    disk.begin({place: (0, 0) for place in log if disk.next(place) is None})
    return disk


def feed(disk: Disk, log: Log, batch: int) -> None:
    """All that is left, in batches, as often as the disk asks for it; then finish."""
    for _ in range(10_000):
        batches = {}
        for place, records in log.items():
            at = disk.next(place)
            assert at is not None
            if at < len(records):
                batches[place] = records[at : at + batch]
        if batches:
            disk.take(batches)
        elif not disk.finish_all():
            return
    raise AssertionError("it does not come to an end")


def read(root: Path) -> tuple[dict[Place, list[Record]], Manifest]:
    """All that is in a recording, which must be sound."""
    with open_recording(root) as recording:
        assert recording.verify(), recording.problems
        return {p: list(recording.records(*p)) for p in recording.places}, recording.manifest


@contextmanager
def killed_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Raise `Killed` in place of the so-many-th change to names or contents on disk.

    Yields how many there were so far.
    """
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == moment:
                raise Killed
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counted(os.fsync))
        for name in ("rename", "replace", "unlink", "open"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        yield lambda: count


def let_go(disk: Disk) -> None:
    """Close what a killed process had open, and write nothing more."""
    for partial in disk._open.values():
        partial._sink.given_up = True
        partial._writer.abandon()
        partial._sink.close()
