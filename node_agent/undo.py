"""Giving everything back without an agent: after a crash, and before it is taken off a machine.

Called by `slackwater node release-all` and `uninstall`; the journal alone says what was turned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from node_agent import originals
from node_agent.cgroup.layout import Layout, detect
from node_agent.isolation import release_kept
from node_agent.journal import NAME, OLD_NAME, Journal
from node_agent.lock import LOCK_NAME, lock
from node_agent.settings import POLICIES_NAME

ISOLATION = "isolation"  # among best-effort roots, in what is said
OURS = (NAME, OLD_NAME, POLICIES_NAME, LOCK_NAME)


@dataclass(frozen=True, slots=True)
class Undone:
    """``refused``: best-effort root, or isolation -> reasons of what the kernel refused."""

    refused: Mapping[str, list[str]]
    broken_lines: int

    @property
    def whole(self) -> bool:
        """Whether all that was turned says its own again, as far as the journal can tell."""
        return not any(self.refused.values()) and not self.broken_lines


def undo(state_dir: Path, kernel_boot: str, layout: Layout | None = None) -> Undone:
    """Every original back. Raises AlreadyRunning beside an agent, OSError for a bad folder."""
    held = lock(state_dir)
    journal = Journal(state_dir, kernel_boot)
    refused: dict[str, list[str]] = {}
    try:
        for root in sorted(journal.state.originals):
            trees = originals.open_trees(layout or detect(), root)
            refused[root] = originals.release(trees, journal)
            trees.close()
        if journal.state.kept:
            refused[ISOLATION] = release_kept(layout or detect(), journal)
        return Undone(refused, journal.state.broken_lines)
    finally:
        journal.close()
        os.close(held)


def forget(state_dir: Path) -> None:
    """Take away what an agent keeps in its folder, and the folder when nothing else is in it."""
    for name in OURS:
        (state_dir / name).unlink(missing_ok=True)
    if not any(state_dir.iterdir()):
        state_dir.rmdir()
