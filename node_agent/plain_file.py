"""Reads a file that somebody else writes: never waits on a pipe, never takes more than was agreed.

Called for the inventory file and the kubelet's state files. Links are followed: that is how
Kubernetes mounts what it rotates.
"""

from __future__ import annotations

import os
import stat

Stamp = tuple[int, int, int]


def stamp(path: str) -> Stamp:
    """What a changed or replaced file has another of. Raises OSError."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def read(path: str, most_bytes: int) -> bytes:
    """The content. Raises OSError, or ValueError for what is no plain file or is too large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path}: no plain file; write one")
        raw = file.read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise ValueError(f"{path}: larger than {most_bytes} bytes")
    return raw
