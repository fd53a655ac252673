"""The group of the machine's daemons: a third authority over paths, of exactly the groups named.

Which group that is the inventory file says (`daemons_group`), never a command, and never one that
holds a pod, lies in one, or touches best effort's (`Roster`). Limits may be set here and given
back; nothing is frozen or killed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Literal

from node_agent.actuators.beneath import (
    Beneath,
    UnsafePath,
    Write,
    safe_parts,
)
from node_agent.actuators.knob import Raw

LIMITS = frozenset("cpu.cfs_quota_us cpu.max memory.high memory.max memory.limit_in_bytes".split())


class DaemonsSurface:
    """One hierarchy; holds one descriptor, of the mount point."""

    def __init__(
        self, mount: str, version: Literal[1, 2], groups: Collection[str], write: Write = os.write
    ) -> None:
        """Raises OSError when the mount is not there, UnsafePath for a group that is no path."""
        self.version = version
        self._groups = frozenset(safe_parts(group) for group in groups)
        self._beneath = Beneath(mount, write)

    def close(self) -> None:
        """Give the descriptor back."""
        self._beneath.close()

    def members(self, unit: str, deep: bool) -> list[str]:
        """The group itself."""
        return [unit]

    def look(self, place: str, files: Sequence[str]) -> tuple[int, Raw] | None:
        """The directory's inode, and the files that are there."""
        return self._beneath.look(safe_parts(place), files)

    def write(self, place: str, file: str, text: str, original: str | None) -> None:
        """One limit. Raises UnsafePath for any other group or file, OSError."""
        parts = safe_parts(place)
        if parts not in self._groups:
            raise UnsafePath(f"{place!r} is not the daemons' group that the inventory file names")
        if file not in LIMITS or not text.strip():
            raise UnsafePath(f"refusing to write {text!r} to {file!r} of the daemons' group")
        with self._beneath.open(parts) as directory:
            self._beneath.write(directory, file, text.encode())
