"""The folder of a recording on disk: `manifest.json`, and a journal of segments a partition.

`segments.jsonl` in each partition's folder has one line of JSON a segment; a line counts when its
segment is there, whole. A segment is finished in this order: the file's bytes are on disk, it gets
its name, then its line is on disk; so a kill leaves a whole segment at every moment, and at most a
file without a line (`streams.recording.mend`). Written by `streams.recording.disk`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from streams.recording import manifest as manifests
from streams.recording.container import read_plain
from streams.recording.manifest import NAME, BadRecording, Manifest, Problem, Segment

JOURNAL = "segments.jsonl"
LOCK = "lock"
BEGINS = "begins.json"
Place = tuple[str, int]
Begins = dict[Place, tuple[int, int]]
"""Where a recording of a place began, and from which offset on it owes every record."""


def read_folder(root: Path) -> tuple[Manifest, list[Problem]]:
    """The manifest of a recording with all segments that its journals name.

    Raises BadRecording for a folder that is none.
    """
    try:
        raw = read_plain(root, NAME)
    except FileNotFoundError:
        raise BadRecording(f"{root} is no recording: it has no {NAME}") from None
    except OSError as error:
        raise BadRecording(f"{root / NAME} cannot be read: {error.strerror or error}") from None
    manifest = manifests.read(raw)
    problems: list[Problem] = []
    segments: list[Segment] = []
    for journal in sorted(root.glob(f"*/*/{JOURNAL}")):
        name = journal.relative_to(root).as_posix()
        try:
            found, wrong = read_journal(root, name)
        except OSError as error:
            problems.append(Problem(name, f"cannot be read: {error.strerror or error}"))
            continue
        segments += found
        problems += wrong
    return msgspec.structs.replace(manifest, segments=tuple(segments)), problems


def read_journal(root: Path, name: str) -> tuple[list[Segment], list[Problem]]:
    """Segments of one journal; a torn last line is what a kill leaves, any other is a problem."""
    problems: list[Problem] = []
    found: dict[str, Segment] = {}
    whole, _, _ = read_plain(root, name).rpartition(b"\n")
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            segment = msgspec.json.decode(line, type=Segment)
            manifests.check(segment)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BadRecording) as error:
            problems.append(Problem(f"{name} line {number}", f"cannot be read: {error}"[:300]))
            continue
        if f"{segment.topic}/{segment.partition}/{JOURNAL}" != name:
            problems.append(Problem(f"{name} line {number}", "names a segment of another place"))
            continue
        found[segment.name] = segment
    return list(found.values()), problems


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Replace `manifest.json`; segments are in the journals. Raises OSError."""
    bare = msgspec.structs.replace(manifest, segments=())
    _replace(root / NAME, msgspec.json.format(msgspec.json.encode(bare), indent=1) + b"\n")


def append_line(root: Path, segment: Segment) -> None:
    """Put a segment into its journal, for good. Raises OSError."""
    path = journal_of(root, (segment.topic, segment.partition))
    with path.open("ab", buffering=0) as file:
        line = memoryview(msgspec.json.encode(segment) + b"\n")
        while line:
            line = line[file.write(line) or 0 :]
        os.fsync(file.fileno())


def write_journal(root: Path, place: Place, segments: Iterable[Segment]) -> None:
    """Replace a journal whole. Raises OSError."""
    lines = [msgspec.json.encode(segment) + b"\n" for segment in segments]
    _replace(journal_of(root, place), b"".join(lines))


def read_begins(root: Path) -> Begins:
    """Where each place began; without it a kill before the first segment would begin anew."""
    try:
        said = msgspec.json.decode(
            (root / BEGINS).read_bytes(), type=dict[str, dict[int, tuple[int, int]]]
        )
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
    return {(topic, number): at for topic, of in said.items() for number, at in of.items()}


def write_begins(root: Path, begins: Begins) -> None:
    """Keep it, for good. Raises OSError."""
    said: dict[str, dict[int, tuple[int, int]]] = {}
    for (topic, number), at in begins.items():
        said.setdefault(topic, {})[number] = at
    _replace(root / BEGINS, msgspec.json.encode(said))


def journal_of(root: Path, place: Place) -> Path:
    """Where the journal of a place is."""
    return root / place[0] / str(place[1]) / JOURNAL


def sync_folder(folder: Path) -> None:
    """Names in a folder are on disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(root: Path) -> int:
    """A descriptor that holds the folder for this process until it is closed, or the process ends.

    Raises BadRecording when another process has it.
    """
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise BadRecording(
            f"{root} is being recorded into by process {holder or 'of another'}: one recorder a "
            "folder; stop that one, or name another folder"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def is_locked(root: Path) -> bool:
    """Whether a recorder is at work on a folder."""
    try:
        descriptor = os.open(root / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)
