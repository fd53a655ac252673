"""One cgroup hierarchy as a `knob.Surface`: both authorities behind one name of a group.

Groups are named from the hierarchy's root. What lies in the best-effort subtree is written through
`subtree`, all else through `online`; reading asks neither.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Literal

from node_agent.actuators.beneath import (
    GONE,
    Beneath,
    Write,
    children,
    safe_parts,
)
from node_agent.actuators.knob import Raw
from node_agent.actuators.online import CONTAINER_DEPTH, OnlineGroups, OnlineNames
from node_agent.actuators.subtree import BE_ROOT, Subtree, inside
from node_agent.cgroup.paths import strictly_inside
from node_agent.cgroup.walk import LEAF_LINKS


class HierarchySurface:
    """``roots``: best-effort roots; ``names``: whose groups may be given to, besides."""

    def __init__(
        self,
        mount: str,
        version: Literal[1, 2],
        roots: Collection[str],
        names: OnlineNames,
        write: Write = os.write,
    ) -> None:
        """Raises OSError when the mount is not there, UnsafePath for a root that is no path."""
        self.version = version
        self._beneath = Beneath(mount)
        self._online = OnlineGroups(mount, names, write)
        self._subtrees = tuple(Subtree(mount, version, root, write) for root in roots)

    def close(self) -> None:
        """Give the descriptors back."""
        self._beneath.close()
        self._online.close()
        for tree in self._subtrees:
            tree.close()

    def members(self, unit: str, deep: bool) -> list[str]:
        """The group and, when ``deep``, those in it, parents first."""
        return self._below(unit, CONTAINER_DEPTH) if deep else [unit]

    def _below(self, place: str, depth: int) -> list[str]:
        try:
            with self._beneath.open(safe_parts(place)) as directory:
                leaf = not depth or os.fstat(directory).st_nlink == LEAF_LINKS
                names = [] if leaf else children(directory)
        except OSError as error:
            if error.errno in GONE:
                return []
            raise
        found = [place]
        for name in names:
            found += self._below(f"{place}/{name}", depth - 1)
        return found

    def look(self, place: str, files: Sequence[str]) -> tuple[int, Raw] | None:
        """The directory's inode, and the files that are there."""
        return self._beneath.look(safe_parts(place), files)

    def write(self, place: str, file: str, text: str, original: str | None) -> None:
        """Through the authority that the place belongs to; what is named online is online."""
        if self._online.names.holds(safe_parts(place)):
            return self._online.write(place, file, text, original)
        for tree in self._subtrees:
            if place == tree.root:
                return tree.write(BE_ROOT, file, text)
            if strictly_inside(place, tree.root):
                return tree.write(inside(place, tree.root), file, text)
        return self._online.write(place, file, text, original)
