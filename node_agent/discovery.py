"""Pods found by looking at the control groups, for a machine whose kubelet is not asked.

Finds the kubepods tree wherever it is nested, in the form of both drivers (``kubepods/besteffort/
pod<uid>`` and ``kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<uid>.slice``), and
groups that match configured patterns such as ``slackwater-demo/*/*``. Class from the path:
guaranteed LSR, burstable LS, besteffort BE; a pattern's groups are BE below the best-effort root
and LS elsewhere. Requests and names are not in the kernel: they stay at their defaults.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from node_agent.cgroup.layout import Layout
from node_agent.cgroup.paths import normal_group, overlaps, strictly_inside
from node_agent.cgroup.walk import children
from node_agent.inventory import Census, InventoryError, Pod, Revisions, check_place
from node_agent.inventory_node import REFRESH_US, NodeFactsError, node_facts
from schemas.records import Inventory, PodFact, Qos

_LOG = logging.getLogger(__name__)
RESCAN_US = 1_000_000
TREES_US = 30_000_000  # a walk over all groups of the machine
TREE_DEPTH_MAX = 6  # how deep a kubepods tree may be nested (kind: a node within a container)
TREE_GROUPS_MAX = 10_000
_POD = re.compile(r"(?:^|-)pod(?P<uid>[0-9a-f][0-9a-f_-]+)(?:\.slice)?$")
_CONTAINER = re.compile(
    r"^(?:(?:cri-containerd|crio|docker|libpod)-)?(?P<id>[0-9a-f]{12,64})(?:\.scope)?$"
)
_TREE = re.compile(r"^(?:.*-)?kubepods(?:\.slice)?$")
_CLASS = re.compile(r"(?:^|-)(?P<qos>besteffort|burstable)(?:\.slice)?$")
_QOS: dict[str, Qos] = {"besteffort": "BE", "burstable": "LS"}


def pod_uid(name: str) -> str | None:
    """The uid in a pod's directory name; a static pod's is its config hash."""
    match = _POD.search(name)
    return None if match is None else match["uid"].replace("_", "-")


def container_id(name: str) -> str | None:
    """The id in a container's directory name, as each runtime writes it."""
    match = _CONTAINER.match(name)
    return None if match is None else match["id"]


class _Found(NamedTuple):
    """A group that looks like a pod."""

    group: str
    uid: str
    name: str
    qos: Qos


class Discovery:
    """An `InventorySource` over the control groups themselves."""

    def __init__(
        self,
        node: str,
        layout: Layout,
        *,
        first_rev: int,
        roots: tuple[str, ...] = (),
        be_root: str | None = None,
        kubernetes: bool = True,
    ) -> None:
        """``roots``: patterns of groups, each match one pod. Without ``be_root`` the best-effort
        group of the first kubepods tree is taken. Raises `GroupPathError` for an unsafe pattern.
        """
        self.refused: dict[str, str] = {}  # group -> why it was not taken
        self.error = ""  # why the latest scan failed; empty: it did not
        self._node = node
        self._layout = layout
        self._roots = tuple(_pattern(normal_group(root)) for root in roots)
        self._be_root = None if be_root is None else normal_group(be_root)
        self._kubernetes = kubernetes
        self._revisions = Revisions(first_rev)
        self._trees: tuple[str, ...] = ()
        self._trees_us: int | None = None
        self._state: tuple[Inventory, list[_Found], str | None] | None = None
        self._facts: Inventory | None = None
        self._facts_us = 0
        self._scanned_us = 0
        self._census: Census | None = None

    def poll(self, mono_us: int) -> Census:
        """Scans at most once in `RESCAN_US`; looks for new trees every `TREES_US`.

        A scan that fails keeps the last state. Raises `InventoryError` when the first one does.
        """
        if self._census is not None and mono_us - self._scanned_us < RESCAN_US:
            return self._census
        self._scanned_us = mono_us
        try:
            self._census = self._scan(mono_us)
            self.error = ""
        except (OSError, NodeFactsError) as error:
            if self._census is None:
                raise InventoryError(f"cannot discover pods: {error}") from error
            if str(error) != self.error:
                self.error = str(error)
                _LOG.warning("pods not looked for, the last state holds: %s", error)
        return self._census

    def _scan(self, mono_us: int) -> Census:
        if self._kubernetes and (self._trees_us is None or mono_us - self._trees_us >= TREES_US):
            self._trees = self._find_trees()
            self._trees_us = mono_us
        be_root = self._best_effort_root()
        if self._facts is None or mono_us - self._facts_us >= REFRESH_US:
            self._facts = node_facts(self._node, self._layout, be_root)
            self._facts_us = mono_us
        state = self._facts, self._find(be_root), be_root
        if self._census is not None and state == self._state:
            return self._census
        self._state = state
        return self._revisions.census(self._facts, self._take(*state[1:]), be_root)

    def _find(self, be_root: str | None) -> list[_Found]:
        """Everything that looks like a pod, in order; cheap, for it is compared every scan."""
        found = {pod.group: pod for pod in self._matches(be_root)}
        found |= {pod.group: pod for tree in self._trees for pod in self._tree_pods(tree)}
        return sorted(found.values())

    def _take(self, found: list[_Found], be_root: str | None) -> list[Pod]:
        """The pods that are where their class belongs; the others are in `refused`."""
        inner = {parent for each in found for parent in _parents(each.group)}
        self.refused = {}
        taken: dict[str, Pod] = {}
        for group, uid, name, qos in found:
            pod = Pod(PodFact(uid=uid, name=name, qos=qos), group)
            trouble = check_place(pod, be_root)
            if group in inner:
                trouble = "contains groups that are pods themselves"
            elif uid in taken:
                trouble = f"has the uid of {taken[uid].group!r}"
            if trouble is None:
                taken[uid] = pod
            else:
                self.refused[group] = trouble
        return list(taken.values())

    def _best_effort_root(self) -> str | None:
        if self._be_root is not None:
            return self._be_root
        for tree in self._trees:
            for name in self._children(tree):
                match = _CLASS.search(name)
                if match is not None and match["qos"] == "besteffort":
                    return f"{tree}/{name}"
        return None

    def _find_trees(self) -> tuple[str, ...]:
        """Every kubepods group, outermost first."""
        trees: list[str] = []
        level, seen = [""], 0
        for _ in range(TREE_DEPTH_MAX):
            deeper: list[str] = []
            for parent in level:
                for name in self._children(parent):
                    group = f"{parent}/{name}".lstrip("/")
                    seen += 1
                    (trees if _TREE.match(name) else deeper).append(group)
                if seen >= TREE_GROUPS_MAX:
                    return tuple(trees)
            level = deeper
        return tuple(trees)

    def _tree_pods(self, tree: str) -> Iterator[_Found]:
        """Pods of one kubepods tree, of its three classes."""
        for name in self._children(tree):
            uid, match = pod_uid(name), _CLASS.search(name)
            if uid is not None:
                yield _Found(f"{tree}/{name}", uid, uid, "LSR")
            elif match is not None:
                for child in self._children(f"{tree}/{name}"):
                    uid = pod_uid(child)
                    if uid is not None:
                        yield _Found(f"{tree}/{name}/{child}", uid, uid, _QOS[match["qos"]])

    def _matches(self, be_root: str | None) -> Iterator[_Found]:
        """Groups that match a pattern; the best-effort root and what holds it are no pods."""
        for base, parts in self._roots:
            groups = [base]
            for part in parts:
                groups = [
                    f"{group}/{name}".lstrip("/")
                    for group in groups
                    for name in self._children(group)
                    if fnmatchcase(name, part)
                ]
            for group in groups:
                best_effort = be_root is not None and strictly_inside(group, be_root)
                if be_root is None or best_effort or not overlaps(group, be_root):
                    name = group.rpartition("/")[2]
                    uid = container_id(name) or group
                    yield _Found(group, uid, name, "BE" if best_effort else "LS")

    def _children(self, group: str) -> list[str]:
        return children(f"{self._layout.anchor}/{group}")


def _pattern(root: str) -> tuple[str, tuple[str, ...]]:
    """(the groups that are named plainly, what their children must match, level by level)."""
    parts = root.split("/")
    plain = 0
    while plain < len(parts) - 1 and not set(parts[plain]) & set("*?["):
        plain += 1
    return "/".join(parts[:plain]), tuple(parts[plain:])


def _parents(group: str) -> Iterator[str]:
    """The groups above one, without the hierarchy's root."""
    while "/" in group:
        group = group.rpartition("/")[0]
        yield group
