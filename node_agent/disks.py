"""Whole disks of this machine by number, for limits that are set disk by disk.

Called by `node_agent.isolation` now and then. Partitions have no limit of their own, and what is
memory or a file underneath is no disk.
"""

from __future__ import annotations

import os
from pathlib import Path

NO_DISKS = ("loop", "ram", "zram", "sr", "fd", "nbd")


def disks(root: str = "/") -> tuple[str, ...]:
    """Numbers such as ``254:0``, sorted; none where /sys is not there."""
    block = Path(root, "sys/block")
    found = set()
    try:
        names = sorted(os.listdir(block))
    except OSError:
        return ()
    for name in names:
        if name.rstrip("0123456789") in NO_DISKS:
            continue
        try:
            sectors = int((block / name / "size").read_text("ascii"))
            number = (block / name / "dev").read_text("ascii").strip()
        except (OSError, ValueError):  # it went while we looked
            continue
        if sectors:
            found.add(number)
    return tuple(sorted(found))
