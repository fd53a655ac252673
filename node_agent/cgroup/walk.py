"""Which groups lie below a group; called by discovery and by the signals that look into a pod.

A directory of a control group has two links and one more for each group below it, so a leaf is
known by one stat, without reading its forty files.
"""

from __future__ import annotations

import os

SUBGROUPS_MAX = 32
LEAF_LINKS = 2  # file systems that do not count give 1: these are read


def children(directory: str) -> list[str]:
    """Names of the groups directly below, sorted; none when the directory is gone."""
    try:
        if os.stat(directory).st_nlink == LEAF_LINKS:
            return []
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def subgroups(top: str) -> list[str]:
    """Directories of ``top`` and of the groups below it, nearest first, at most `SUBGROUPS_MAX`."""
    found = [top]
    for directory in found:
        found.extend(f"{directory}/{name}" for name in children(directory))
        if len(found) >= SUBGROUPS_MAX:
            return found[:SUBGROUPS_MAX]
    return found
