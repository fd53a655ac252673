"""Old segments of a topic of facts become one that holds the newest record of each key.

Called by `streams.recording.disk` when a recording has reached its bound. The merged file waits
under another name until the journal names it, for its own may still be that of an old segment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from streams.recording import store
from streams.recording.container import Folder
from streams.recording.manifest import Manifest, Segment
from streams.recording.mend import NEXT
from streams.recording.partial import begun
from streams.recording.recording import Recording
from streams.recording.segment import Record
from streams.recording.store import Place


def merge(
    root: Path,
    manifest: Manifest,
    place: Place,
    segments: Sequence[Segment],
    old: Sequence[Segment],
) -> list[Segment]:
    """The segments of a place with ``old`` as one in front; `mend` ends what a kill interrupts.

    Raises OSError.
    """
    newest: dict[bytes | None, Record] = {}
    told = msgspec.structs.replace(manifest, segments=tuple(old))
    with Recording(told, Folder(root), []) as recording:
        for record in recording.records(*place, old[0].first - 1, old[-1].last):
            newest.pop(record.key, None)
            newest[record.key] = record
        if recording.problems:
            return list(segments)  # a damaged one is left for `verify` to name
    gone = {each.name for each in old}
    merged = _written(root, place, list(newest.values()))
    kept = [merged, *(each for each in segments if each.name not in gone)]
    store.write_journal(root, place, kept)
    (root / f"{merged.name}{NEXT}").rename(root / merged.name)
    for name in gone - {merged.name}:
        (root / name).unlink(missing_ok=True)
    store.sync_folder(root / place[0] / str(place[1]))
    return kept


def _written(root: Path, place: Place, records: list[Record]) -> Segment:
    partial = root / place[0] / str(place[1]) / "merged.partial"
    sink, writer = begun(partial, place)
    try:
        writer.write(records)
        merged = writer.close()
        os.fsync(sink.fileno())
    except OSError:
        sink.given_up = True
        writer.abandon()
        raise
    finally:
        sink.close()
    partial.rename(root / f"{merged.name}{NEXT}")
    store.sync_folder(partial.parent)
    return merged
