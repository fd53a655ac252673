"""resctrl as two `knob.Surface`s: its groups by name, and pods by the group their tasks are in.

A group that is not made says so, and the root's lines instead of its own. A pod of which some tasks
are in a group that is not ours has these left out: they are somebody else's.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Collection, Sequence

from agents.isolation.resctrl import GROUPS, new_tasks
from node_agent.actuators.beneath import UnsafePath, safe_parts
from node_agent.actuators.failure import Named
from node_agent.actuators.knob import Raw
from node_agent.actuators.online import OnlineNames
from node_agent.actuators.pod_tasks import PodTasks
from node_agent.actuators.resctrl import PREFIX, ROOT, Resctrl, our
from node_agent.cgroup.paths import strictly_inside

MADE, SCHEMATA, WHOLE, GROUP = "made", "schemata", "whole", "group"
"""``whole``: what the root has."""
BOUNDS = ("info/L3/cbm_mask", "info/L3/min_cbm_bits", "info/MB/min_bandwidth")
STEP = "info/MB/bandwidth_gran"
NOWHERE = "root"
"""Where tasks are that are in no group of ours."""
FRESH_US = 200_000
"""So long the list of all tasks of groups is good: it may be thousands of lines."""
ROUNDS = 5
"""While tasks are moved, others are born beside those that were not moved yet."""
BEST_EFFORT = "BE"


class ResctrlGroups:
    """Places are groups of ours, whether they are made or not; ``bandwidth``: MB may be set."""

    version = 0

    def __init__(self, tree: Resctrl, *, bandwidth: bool) -> None:
        self._tree, self._bandwidth = tree, bandwidth

    def close(self) -> None:
        """Give the tree back."""
        self._tree.close()

    def members(self, unit: str, deep: bool) -> list[str]:
        """The group itself."""
        return [unit]

    def look(self, place: str, files: Sequence[str]) -> tuple[int, Raw] | None:
        """All groups have one identity: what a remount took away is made again."""
        own = self._tree.read(our(place), SCHEMATA)
        whole = self._tree.read(ROOT, SCHEMATA) or ""
        raw = {
            MADE: "0" if own is None else "1",
            SCHEMATA: self._settable(whole if own is None else own),
            WHOLE: self._settable(whole),
        }
        for file in (*BOUNDS, STEP):
            text = self._tree.read(ROOT, file)
            if text is not None:
                raw[file] = text.strip()
        return 1, raw

    def _settable(self, text: str) -> str:
        lines = text.splitlines()
        return "\n".join(x for x in lines if self._bandwidth or not x.strip().startswith("MB"))

    def write(self, place: str, file: str, text: str, original: str | None) -> None:
        """``made`` 1 or 0, or one line of the schemata. Raises OSError, UnsafePath."""
        if file == SCHEMATA:
            self._tree.set_schemata(place, text)
        elif text == "1":
            self._tree.make(place)
        else:
            self._tree.remove(place)

    def clean(self, kept: Collection[str]) -> None:
        """Groups of an earlier start that nobody remembers."""
        self._tree.clean(kept)


class ResctrlTasks:
    """Places are pods; an online one's tasks never join best effort's group."""

    version = 0

    def __init__(
        self, tree: Resctrl, tasks: PodTasks, roots: Collection[str], names: OnlineNames
    ) -> None:
        self._tree, self._tasks = tree, tasks
        self._roots, self._names = tuple(roots), names
        self._known: dict[int, str] = {}
        self._known_us = -FRESH_US

    def close(self) -> None:
        """Give tree and hierarchy back."""
        self._tree.close()
        self._tasks.close()

    def members(self, unit: str, deep: bool) -> list[str]:
        """The pod itself: its tasks are those of all groups in it."""
        return [unit]

    def look(self, place: str, files: Sequence[str]) -> tuple[int, Raw] | None:
        """The group's inode, and the groups that its tasks are in; nothing where none runs."""
        identity = self._tasks.identity(place)
        if identity is None:
            return None
        where = self._where()
        found = {where.get(task, NOWHERE) for task in self._tasks.threads(place)}
        ours = {name for name in found if name == NOWHERE or name.startswith(PREFIX)}
        raw = {GROUP: "+".join(sorted(name.removeprefix(PREFIX) for name in ours))} if ours else {}
        return identity, raw

    def write(self, place: str, file: str, text: str, original: str | None) -> None:
        """Move all that is ours to move. Raises UnsafePath, Named without such a group, OSError."""
        name = text if text in GROUPS else ROOT
        self._check(place, name)
        if name and self._tree.read(our(name), SCHEMATA) is None:
            raise Named(errno.ENOENT, "no_resctrl_group", f"resctrl group {our(name)} is not made")
        try:
            self._move(place, name)
        finally:
            self._known_us = -FRESH_US

    def _move(self, place: str, name: str) -> None:
        for _ in range(ROUNDS):
            self._known_us = -FRESH_US
            where = self._where()
            there = {task for task, directory in where.items() if name and directory == our(name)}
            tasks = new_tasks(there, self._tasks.threads(place))
            todo = [task for task in tasks if self._movable(where.get(task), name)]
            if not todo:
                break
            self._tree.add(name, todo)

    def _movable(self, directory: str | None, name: str) -> bool:
        """Not a stranger's, and not where it shall be."""
        if directory is None:
            return name != ROOT
        return directory.startswith(PREFIX)

    def _check(self, place: str, name: str) -> None:
        online = self._names.holds(safe_parts(place))
        inside = any(strictly_inside(place, root) for root in self._roots)
        if not online and not inside:
            raise UnsafePath(f"{place!r} is no pod that the inventory names")
        if online and name == BEST_EFFORT:
            raise UnsafePath(f"{place!r} is online: its tasks do not join {our(name)}")

    def _where(self) -> dict[int, str]:
        now_us = time.monotonic_ns() // 1000
        if now_us - self._known_us >= FRESH_US:
            self._known, self._known_us = self._tree.whereabouts(), now_us
        return self._known
