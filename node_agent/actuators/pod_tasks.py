"""What runs in a group and below it: threads and processes, by id; read only.

Surfaces of what is no control group's file (resctrl, the OOM score, core scheduling) ask here whose
tasks they may touch.
"""

from __future__ import annotations

import os
from typing import Literal

from node_agent.actuators.beneath import GONE, Beneath, children, safe_parts
from node_agent.actuators.subtree import MAX_DEPTH

THREADS = {1: "tasks", 2: "cgroup.threads"}
PROCESSES = "cgroup.procs"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 16


class PodTasks:
    """One hierarchy; holds the descriptor of its mount."""

    def __init__(self, mount: str, version: Literal[1, 2]) -> None:
        """Raises OSError when the mount is not there."""
        self._beneath = Beneath(mount)
        self._threads = THREADS[version]

    def close(self) -> None:
        """Give the descriptor back."""
        self._beneath.close()

    def identity(self, group: str) -> int | None:
        """The directory's inode; None when the group is gone. Raises OSError, UnsafePath."""
        try:
            with self._beneath.open(safe_parts(group)) as directory:
                return os.fstat(directory).st_ino
        except OSError as error:
            if error.errno in GONE:
                return None
            raise

    def threads(self, group: str) -> list[int]:
        """Thread ids of the group and of those below it, ascending; none when it is gone."""
        return sorted(self._below(group, self._threads, MAX_DEPTH))

    def processes(self, group: str) -> list[int]:
        """Process ids, as `threads`."""
        return sorted(self._below(group, PROCESSES, MAX_DEPTH))

    def _below(self, group: str, file: str, depth: int) -> set[int]:
        try:
            with self._beneath.open(safe_parts(group)) as directory:
                found = {int(line) for line in read_whole(directory, file).split()}
                names = children(directory) if depth else []
        except OSError as error:
            if error.errno in GONE:
                return set()
            raise
        for name in names:
            found |= self._below(f"{group}/{name}", file, depth - 1)
        return found - {0}  # of a process that this pid namespace does not show


def read_whole(directory: int, file: str) -> str:
    """A file that is longer than a page, as these can be. Raises OSError."""
    descriptor = os.open(file, _READ, dir_fd=directory)
    try:
        parts = []
        while part := os.read(descriptor, _CHUNK):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode()
