"""Reads a file that somebody else writes: never waits on a pipe, never takes more than was agreed.

Called for the inventory file and the kubelet's state files. Links are followed: that is how
Kubernetes mounts what it rotates.
"""

from __future__ import annotations

import errno
import os
import stat

Stamp = tuple[int, int, int]


def stamp(path: str) -> Stamp:
    """What a changed or replaced file has another of. Raises OSError."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def read(path: str, most_bytes: int, *, follow: bool = True) -> bytes:
    """The content. Raises OSError, or ValueError for what is no plain file, is too large, or
    anybody may write; ``follow`` False: for a link too.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{path}: a link; put the file itself there") from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise ValueError(f"{path}: no plain file; write one")
    with os.fdopen(descriptor, "rb") as file:
        if mode & stat.S_IWOTH:
            raise ValueError(f"{path}: anybody may write it; chmod o-w {path}")
        raw = file.read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise ValueError(f"{path}: larger than {most_bytes} bytes")
    return raw
