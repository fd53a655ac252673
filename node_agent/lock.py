"""One agent a node: the lock of a state directory, and whether that is fit to be one.

Taken by the agent's loop for its life and by `slackwater node release-all` while it works.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

LOCK_NAME = "lock"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 10  # a file that is swapped while it is locked


class AlreadyRunning(OSError):
    """Another agent holds this state directory."""


class UnsafeFolder(OSError):
    """A state directory that others may write: they would write the agent's memory."""


def lock(directory: Path) -> int:
    """The state directory's lock, held until the descriptor is closed.

    Raises AlreadyRunning, and UnsafeFolder for a directory that is not the agent's alone.
    """
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    check(directory)
    path = directory / LOCK_NAME
    for _ in range(_TRIES):
        descriptor = os.open(path, _OPEN, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyRunning(f"another node agent holds {path}; one agent a node") from None
        if _is_still(descriptor, path):
            return descriptor
        os.close(descriptor)
    raise UnsafeFolder(f"{path} is replaced while it is locked; who else works in {directory}?")


def check(directory: Path) -> None:
    """Raises UnsafeFolder for a directory of another user, or one that others may write."""
    status = os.stat(directory)
    if status.st_uid not in (0, os.geteuid()):
        raise UnsafeFolder(
            f"{directory} belongs to user {status.st_uid}; chown it, or name another"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeFolder(f"{directory} can be written by others; chmod go-w {directory}")


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether the locked file is the one that the next agent would lock."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
