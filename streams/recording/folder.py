"""The folder of a recording, opened for writing: by one process, for one installation.

Called by `streams.recording.recorder`.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from pathlib import Path

import msgspec

from schemas import codec
from schemas.records import Installation
from streams.recording import store
from streams.recording.manifest import NAME, BadRecording, Manifest, read
from streams.recording.seen import other_incarnation


def opened(root: Path, prefix: str, installation: Installation) -> tuple[Manifest, int]:
    """The manifest of a folder, made where there is none, and the lock that holds it.

    Raises BadRecording for a folder of another installation, of another recorder, or with other
    things in it; OSError for one that cannot be written.
    """
    root.mkdir(parents=True, exist_ok=True)
    if not (root / NAME).exists():
        strangers = {path.name for path in root.iterdir()} - {store.LOCK, f"{NAME}.partial"}
        if strangers:
            raise BadRecording(
                f"{root} holds other things ({min(strangers)[:60]}) and is no recording: name an "
                "empty folder"
            )
    held = store.lock(root)
    try:
        manifest, before = _manifest(root, prefix, installation)
        if manifest != before:
            store.write_manifest(root, manifest)
    except BaseException:
        os.close(held)
        raise
    return manifest, held


def _manifest(
    root: Path, prefix: str, installation: Installation
) -> tuple[Manifest, Manifest | None]:
    """As it is to be, and as it is."""
    software = version("slackwater")
    if not (root / NAME).exists():
        fresh = Manifest(
            kind="recording",
            prefix=prefix,
            incarnation=installation.incarnation,
            partitions=installation.partitions,
            software=software,
            schema_version=codec.VERSION,
            made_ms=time.time_ns() // 1_000_000,
        )
        return fresh, None
    found = read((root / NAME).read_bytes())
    if found.prefix != prefix:
        raise BadRecording(
            f"{root} is a recording of {found.prefix!r}, not of {prefix!r}: name another folder"
        )
    if found.incarnation != installation.incarnation:
        raise other_incarnation(installation.incarnation, found.incarnation)
    now = msgspec.structs.replace(found, software=software, schema_version=codec.VERSION)
    return now, found
