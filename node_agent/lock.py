"""One agent a node: the lock of a state directory.

Taken by the agent's loop for its life and by `slackwater node release-all` while it works.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

LOCK_NAME = "lock"


class AlreadyRunning(OSError):
    """Another agent holds this state directory."""


def lock(directory: Path) -> int:
    """The state directory's lock, held until the descriptor is closed. Raises AlreadyRunning."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(
            f"another node agent holds {directory / LOCK_NAME}; one agent a node"
        ) from None
    return descriptor
