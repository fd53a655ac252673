"""The folder of a recording on disk: `manifest.json`, and a journal of segments a partition.

`segments.jsonl` in each partition's folder has one line of JSON a segment, in the order in which
they were finished; a line counts when its segment is there, whole. Written by the recorder.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from streams.recording import manifest as manifests
from streams.recording.manifest import NAME, BadRecording, Manifest, Problem, Segment

JOURNAL = "segments.jsonl"


def read_folder(root: Path) -> tuple[Manifest, list[Problem]]:
    """The manifest of a recording with all segments that its journals name.

    Raises BadRecording for a folder that is none.
    """
    try:
        raw = (root / NAME).read_bytes()
    except FileNotFoundError:
        raise BadRecording(f"{root} is no recording: it has no {NAME}") from None
    manifest = manifests.read(raw)
    problems: list[Problem] = []
    segments: list[Segment] = []
    for journal in sorted(root.glob(f"*/*/{JOURNAL}")):
        segments += _lines(journal, journal.relative_to(root).as_posix(), problems)
    return msgspec.structs.replace(manifest, segments=tuple(segments)), problems


def _lines(journal: Path, name: str, problems: list[Problem]) -> list[Segment]:
    """Segments of one journal; a torn last line is what a kill leaves, any other is a problem."""
    found: dict[str, Segment] = {}
    raw = journal.read_bytes()
    whole, _, _ = raw.rpartition(b"\n")
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            segment = msgspec.json.decode(line, type=Segment)
            manifests.check(segment)
        except (msgspec.DecodeError, UnicodeDecodeError, BadRecording) as error:
            problems.append(Problem(f"{name} line {number}", f"cannot be read: {error}"[:300]))
            continue
        if f"{segment.topic}/{segment.partition}/{JOURNAL}" != name:
            problems.append(Problem(f"{name} line {number}", "names a segment of another place"))
            continue
        found[segment.name] = segment
    return list(found.values())


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Replace `manifest.json`; segments are in the journals. Raises OSError."""
    partial = root / f"{NAME}.partial"
    bare = msgspec.structs.replace(manifest, segments=())
    with partial.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(bare), indent=1) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(root / NAME)
