"""The groups that kubelets have made: their trees, their pods, the containers of each.

`node_agent.discovery` asks once a second. Trees are found wherever they are nested (a custom root,
a node within a container), and looked for anew every `TREES_US`, for that is a walk over the groups
of the machine. Containers are looked for in turn: a pod's list is read again every `TURN_US`, and
each time while a container that the kubelet has named is not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from node_agent.cgroup.layout import Layout
from node_agent.cgroup.names import class_group, class_name, container_id, is_tree, pod_uid
from node_agent.cgroup.walk import children

TREES_US = 30_000_000
TURN_US = 10_000_000
HURRY_US = 1_000_000
TREE_DEPTH_MAX = 6  # how deep a kubepods tree may be nested (kind: a node within a container)
TREE_GROUPS_MAX = 10_000
CONTAINERS_MAX = 256
"""Of one pod."""


class PodGroup(NamedTuple):
    """A group that a kubelet made for a pod; ``class_of`` is "" for guaranteed ones."""

    group: str
    uid: str
    class_of: str
    tree: str


@dataclass(slots=True)
class _Listed:
    """Groups of one pod's containers by id, until when that holds, and for whom it was read."""

    found: tuple[tuple[str, str], ...]
    due_us: int
    wanted: frozenset[str]
    since_us: int


class PodGroups:
    """What is below the anchor of one layout."""

    def __init__(self, layout: Layout) -> None:
        self.trees: tuple[str, ...] = ()
        self._layout = layout
        self._trees_us: int | None = None
        self._listed: dict[str, _Listed] = {}
        self._wanted: dict[str, frozenset[str]] | None = None
        self._due_us = 0  # when the next list is to be read
        self._found: dict[str, tuple[tuple[str, str], ...]] = {}

    def children(self, group: str) -> list[str]:
        """Names of the groups directly below, sorted."""
        return children(f"{self._layout.anchor}/{group}")

    def look(self, mono_us: int) -> list[PodGroup]:
        """Every pod's group of every tree, in order."""
        if self._trees_us is None or mono_us - self._trees_us >= TREES_US:
            self.trees = self._find_trees()
            self._trees_us = mono_us
        return sorted(pod for tree in self.trees for pod in self._pods(tree))

    def best_effort(self, tree: str) -> str | None:
        """The group of a tree's best-effort pods, if there is one."""
        name = class_group(tree, "besteffort")
        return name if name.rpartition("/")[2] in self.children(tree) else None

    def containers(
        self, wanted: dict[str, frozenset[str]], mono_us: int
    ) -> dict[str, tuple[tuple[str, str], ...]]:
        """(id, group) of the containers of each pod's group; ``wanted``: ids that it should have,
        the same object while nothing of it has changed. Pods not asked for are forgotten.
        """
        if wanted is self._wanted and mono_us < self._due_us:
            return self._found
        self._wanted = wanted
        self._listed = {group: self._list(group, ids, mono_us) for group, ids in wanted.items()}
        self._due_us = min((each.due_us for each in self._listed.values()), default=mono_us)
        found = {group: listed.found for group, listed in self._listed.items()}
        if found != self._found:
            self._found = found
        return self._found

    def populated(self, group: str) -> bool:
        """Whether a process runs in the group or below it."""
        place = self._layout.place("events", group)
        if place is not None:
            try:
                return "populated 1" in Path(place.path).read_text(encoding="ascii")
            except (OSError, UnicodeDecodeError):
                pass  # a hierarchy that does not have this group: v1's files say it too
        place = self._layout.place("procs", group)
        if place is None:
            return False
        names = ["", *(f"/{name}" for name in self.children(group))]
        return any(_has_text(f"{place.directory}{name}/{place.file}") for name in names)

    def _list(self, group: str, wanted: frozenset[str], mono_us: int) -> _Listed:
        known = self._listed.get(group)
        since_us = mono_us
        if known is not None and known.wanted == wanted:
            if mono_us < known.due_us:
                return known
            since_us = known.since_us
        names = self.children(group)[:CONTAINERS_MAX]
        ids = ((container_id(name), f"{group}/{name}") for name in names)
        found = tuple((each, below) for each, below in ids if each is not None)
        missing = not wanted <= {each for each, _ in found}
        hurry = missing and mono_us - since_us < TURN_US
        return _Listed(found, mono_us + (HURRY_US if hurry else TURN_US), wanted, since_us)

    def _pods(self, tree: str) -> Iterator[PodGroup]:
        for name in self.children(tree):
            uid, class_of = pod_uid(name), class_name(name)
            if uid is not None:
                yield PodGroup(f"{tree}/{name}", uid, "", tree)
            elif class_of is not None:
                for child in self.children(f"{tree}/{name}"):
                    uid = pod_uid(child)
                    if uid is not None:
                        yield PodGroup(f"{tree}/{name}/{child}", uid, class_of, tree)

    def _find_trees(self) -> tuple[str, ...]:
        """Every kubepods group, outermost first."""
        trees: list[str] = []
        level, seen = [""], 0
        for _ in range(TREE_DEPTH_MAX):
            deeper: list[str] = []
            for parent in level:
                for name in self.children(parent):
                    group = f"{parent}/{name}".lstrip("/")
                    seen += 1
                    (trees if is_tree(name) else deeper).append(group)
                if seen >= TREE_GROUPS_MAX:
                    return tuple(trees)
            level = deeper
        return tuple(trees)


def _has_text(path: str) -> bool:
    try:
        return bool(Path(path).read_bytes().strip())
    except OSError:
        return False
