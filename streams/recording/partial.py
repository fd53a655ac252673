"""One segment while it grows: a `.partial` file that becomes a segment, or goes.

Used by `streams.recording.disk`. What is in here and not finished is still on the topic: a kill
costs only the reading.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streams.recording import store
from streams.recording.manifest import Segment
from streams.recording.segment import Consumed, Writer

OPEN = "open.partial"


class Sink(io.FileIO):
    """A file that takes all it is given, or raises; once ``given_up`` it takes and forgets."""

    given_up = False

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left and not self.given_up:
            left = left[super().write(left) :]
        return size


def begun(path: Path, place: store.Place) -> tuple[Sink, Writer]:
    """A segment begun at ``path``. Raises OSError, and then nothing is there."""
    sink = Sink(path, "w+")
    try:
        return sink, Writer(*place, sink)
    except OSError:
        sink.close()
        path.unlink()
        raise


class Partial:
    """Writes below ``root``; ``opened_s`` is when, on the caller's clock.

    Raises OSError, and then nothing is there.
    """

    def __init__(self, root: Path, topic: str, partition: int, opened_s: float) -> None:
        self.opened_s = opened_s
        self.taken_bytes = 0
        self._root = root
        self._folder = root / topic / str(partition)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path = self._folder / OPEN
        self._sink, self._writer = begun(self._path, (topic, partition))

    @property
    def held_bytes(self) -> int:
        """Of records in memory that are not yet in the file."""
        return self._writer.held_bytes

    @property
    def size_bytes(self) -> int:
        """Of the file so far."""
        return os.fstat(self._sink.fileno()).st_size

    def write(self, records: Iterable[Consumed]) -> None:
        """Append records. Raises OSError; then only `abandon` is left to call."""
        for record in records:
            self.taken_bytes += len(record.key or b"") + len(record.value or b"")
            self._writer.write((record,))

    def flush(self) -> None:
        """Out of memory into the file. Raises OSError, see `write`."""
        self._writer.flush()

    def finish(self) -> Segment:
        """Make it a segment: bytes on disk, name, line. Raises OSError, see `write`."""
        segment = self._writer.close()
        os.fsync(self._sink.fileno())
        self._sink.close()
        self._path.rename(self._root / segment.name)
        store.sync_folder(self._folder)
        store.append_line(self._root, segment)
        return segment

    def abandon(self) -> None:
        """Let it go; nothing of it stays, unless it has its name already. Raises nothing."""
        if not self._sink.closed:
            self._sink.given_up = True
            self._writer.abandon()
            with contextlib.suppress(OSError):
                self._sink.close()
        with contextlib.suppress(OSError):
            self._path.unlink()
