"""How a recorder is doing: for its metrics, its status line, and whoever asks for its status.

Made by `streams.recording.recorder`; `slackwater record status` reads what it leaves in the folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Self

import msgspec

from streams.metrics import Metrics
from streams.recording.disk import Disk
from streams.recording.store import is_locked

FILE = "status.json"


class Progress(msgspec.Struct, frozen=True):
    """``next``: for each topic/partition the offset to be read next, what is in memory included.

    Counts by topic and ``removed`` (segments), ``fulls`` (times the disk was full) and ``gaps`` are
    since the start of the process; ``lag`` by topic is records on the broker not yet read.
    """

    at_ms: int  # wall time
    pid: int
    records: dict[str, int]
    raw_bytes: dict[str, int]
    lag: dict[str, int]
    next: dict[str, int]
    segments: int
    size_bytes: int
    max_bytes: int
    gaps: int
    removed: int
    fulls: int
    ended: bool = False

    @classmethod
    def of(
        cls, disk: Disk, records: dict[str, int], raw_bytes: dict[str, int], lag: dict[str, int],
        *, ended: bool,
    ) -> Self:  # fmt: skip
        """As it is now."""
        return cls(
            at_ms=time.time_ns() // 1_000_000,
            pid=os.getpid(),
            records=records,
            raw_bytes=raw_bytes,
            lag=lag,
            next={f"{topic}/{number}": at for (topic, number), at in disk.nexts().items()},
            segments=sum(map(len, disk.places.values())),
            size_bytes=disk.size_bytes,
            max_bytes=disk.sizes.max_bytes,
            gaps=disk.gaps,
            removed=disk.removed,
            fulls=disk.fulls,
            ended=ended,
        )

    def show(self, metrics: Metrics) -> None:
        """Put it into the metrics."""
        for topic, count in self.records.items():
            before = metrics.value("record_records_total", topic=topic)
            metrics.add("record_records_total", topic, by=count - before)
        for topic, size in self.raw_bytes.items():
            before = metrics.value("record_bytes_total", topic=topic)
            metrics.add("record_bytes_total", topic, by=size - before)
        for topic, lag in self.lag.items():
            metrics.put("record_lag_records", topic, value=lag)
        for name, total in (
            ("record_gaps_total", self.gaps),
            ("record_removed_segments_total", self.removed),
            ("record_disk_full_total", self.fulls),
        ):
            metrics.add(name, by=total - metrics.value(name))
        metrics.put("record_segments", value=self.segments)
        metrics.put("record_disk_bytes", value=self.size_bytes)
        metrics.put("record_disk_bound_bytes", value=self.max_bytes)

    def write(self, root: Path) -> None:
        """Leave it in the folder; one that cannot be left is left out."""
        partial = root / f"{FILE}.partial"
        with contextlib.suppress(OSError):
            partial.write_bytes(msgspec.json.encode(self))
            partial.replace(root / FILE)


def read(root: Path) -> Progress | None:
    """What the recorder that is at work on a folder said last; None when none is."""
    if not is_locked(root):
        return None
    try:
        return msgspec.json.decode((root / FILE).read_bytes(), type=Progress)
    except (OSError, msgspec.DecodeError):
        return None
