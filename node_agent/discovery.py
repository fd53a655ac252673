"""Who is on this machine: what groups, kubelet and inventory file say, joined into one census.

The agent's one source of pods. Groups are looked at once a second: kubepods trees wherever they are
nested, and groups that rules match. With a kubelet to ask, its pods bring names, classes, requests
and containers; with an API server, the node object brings labels and what can be allocated. The
inventory file says anything of that itself, and its word counts before all others.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from node_agent.cgroup.layout import Layout
from node_agent.cgroup.paths import normal_group
from node_agent.group_rules import GroupRule, RuleGroups
from node_agent.inventory import Census, InventoryError, Revisions
from node_agent.inventory_cpus import zone_places
from node_agent.inventory_file import InventoryFile
from node_agent.inventory_node import NodeFacts, NodeFactsError
from node_agent.join import Joined, Known, join, wanted_ids
from node_agent.kubelet.cpu_manager import NOTHING, CpuManagerState
from node_agent.kubelet.roll import Roll
from node_agent.pod_groups import PodGroup, PodGroups
from schemas.facts import STATIC_CPUS
from schemas.records import Inventory

if TYPE_CHECKING:  # an agent that asks nobody does without the weight of a client
    from collections.abc import Mapping

    from node_agent.kubelet.ask import KubeletSaid
    from node_agent.kubelet.facts import KubePod
    from node_agent.kubelet.watch import Watch

_LOG = logging.getLogger(__name__)
RESCAN_US = 1_000_000
FIRST_S = 3.0
TOLD_MAX = 8


class Discovery:
    """An `InventorySource`."""

    def __init__(
        self,
        node: str,
        layout: Layout,
        *,
        first_rev: int,
        roots: tuple[str, ...] = (),
        be_root: str | None = None,
        kubernetes: bool = True,
        file: InventoryFile | None = None,
        kubelet: Watch[KubeletSaid] | None = None,
        node_object: Watch[dict[str, Any]] | None = None,
        cpu_manager: CpuManagerState | None = None,
    ) -> None:
        """``roots``: patterns of groups, each match one pod. ``be_root`` counts before the file's;
        without both it is the best-effort group of the kubelet's tree. ``kubernetes``: whether
        kubepods trees are looked for. Raises `GroupPathError` for an unsafe pattern.
        """
        self.joined = Joined()
        self.error = ""  # why the latest scan failed; empty: it did not
        watches: tuple[Watch[Any] | None, ...] = (kubelet, node_object)
        self.watches = tuple(each for each in watches if each is not None)
        self.file = file
        self._base = layout.root.rstrip("/")
        self._rules = tuple(GroupRule.of(root) for root in roots)
        self._be_root = None if be_root is None else normal_group(be_root)
        self._kubernetes = kubernetes
        self._kubelet, self._node_object, self._cpu_manager = kubelet, node_object, cpu_manager
        self.facts = NodeFacts(node, layout)
        self._groups = PodGroups(layout)
        self._matched = RuleGroups()
        self._revisions = Revisions(first_rev)
        self._roll = Roll()
        self._said: KubeletSaid | None = None
        self._found: list[PodGroup] = []
        self._named: Mapping[str, KubePod] = {}
        self._wanted: dict[str, frozenset[str]] = {}
        self._strangers: set[str] = set()
        self._tree: str | None = None
        self._state: tuple[object, ...] | None = None
        self._scanned_us = 0
        self._census: Census | None = None

    @property
    def refused(self) -> dict[str, str]:
        """Group -> why it was not taken."""
        return self.joined.refused

    def start(self) -> None:
        """Begin to ask, and wait a moment for first answers: the first census is better with them.

        A kubelet that does not answer holds up nobody.
        """
        for each in self.watches:
            each.start()
        for each in self.watches:
            each.first(FIRST_S)

    def stop(self) -> None:
        """Ask no more."""
        for each in self.watches:
            each.stop()

    def left_out(self) -> int:
        """How many groups and pods could not be taken."""
        of_answer = 0 if self._said is None else self._said.pods.left_out
        return len(self.joined.refused) + self.joined.surplus + of_answer

    def poll(self, mono_us: int) -> Census:
        """Scans at most once in `RESCAN_US`, or when the file has changed.

        A scan that fails keeps the last state. Raises `InventoryError` when the first one does.
        """
        changed = self.file is not None and self.file.look()
        if self._census is not None and not changed and mono_us - self._scanned_us < RESCAN_US:
            return self._census
        self._scanned_us = mono_us
        try:
            self._census = self._scan(mono_us)
            lost = self._lost()
            if lost and lost != self.error:
                _LOG.warning("%s", lost)
            self.error = self.facts.error or lost
        except (OSError, NodeFactsError) as error:
            if self._census is None:
                raise InventoryError(f"cannot discover pods: {error}") from error
            if str(error) != self.error:
                self.error = str(error)
                _LOG.warning("pods not looked for, the last state holds: %s", error)
        return self._census

    def _scan(self, mono_us: int) -> Census:
        found = self._groups.look(mono_us) if self._kubernetes else []
        self._hear(found, mono_us)
        self._tree = self._home(found)
        be_root = self._best_effort_root()
        facts = self.facts.look(mono_us, be_root)
        if found != self._found or self._roll.index is not self._named:
            index = self._roll.index
            self._wanted = {each.group: wanted_ids(index.get(each.uid)) for each in found}
            self._found, self._named = found, index
        rules = self._rules if self.file is None else (*self._rules, *self.file.state.rules)
        known = Known(
            groups=self._found,
            roll=self._roll,
            others=self._matched.look(rules, be_root, self._tree, self._groups.children),
            written=() if self.file is None else self.file.state.pods,
            be_root=be_root,
            tree=self._tree,
            pinned=NOTHING if self._cpu_manager is None else self._cpu_manager.look(),
            containers=self._groups.containers(self._wanted, mono_us),
            zones=zone_places(facts.zones),
        )
        heard = None if self._node_object is None else self._node_object.latest
        state = (
            known,
            facts,
            heard,
            self._roll.index,
            None if self.file is None else self.file.state,
        )
        same = state == self._state
        self._state = state  # the new objects: the next comparison stops at their identity
        if self._census is not None and same:
            return self._census
        before = self.joined
        self.joined = join(known, self._groups.populated)
        _tell(before, self.joined)
        record = self._record(facts, static=known.pinned.static)
        daemons = None if self.file is None else self.file.state.daemons
        return self._revisions.census(record, self.joined.pods, be_root, daemons)

    def _lost(self) -> str:
        """What is wrong where groups of a kubelet are spoken of and none is seen."""
        if self._tree is not None:
            return ""
        if self._kubernetes and self._roll.index:
            return "the kubelet names pods, and no kubepods group is seen; mount the host's cgroups"
        if self.file is not None and any(rule.base != "root" for rule in self.file.state.rules):
            return f"{self.file.path}: groups with a base, and no kubepods group; say --kubepods"
        return ""

    def _hear(self, found: list[PodGroup], mono_us: int) -> None:
        """Take over an answer of the kubelet; ask for one when there is a pod that it left out."""
        if self._kubelet is None:
            return
        latest = self._kubelet.latest
        if latest is not None and latest.said is not self._said:
            self._said = latest.said
            self._roll.hear(self._said.pods.pods, mono_us)
        standing = {each.uid for each in found}
        self._roll.forget(standing, mono_us)
        strangers = standing - self._roll.index.keys()
        if strangers - self._strangers:
            self._kubelet.wake()
        self._strangers = strangers

    def _home(self, found: list[PodGroup]) -> str | None:
        """The tree of the kubelet that is asked: where most of its pods are; the first by default.

        The chosen one stays while it holds any, for best-effort work is bounded there.
        """
        trees = self._groups.trees
        held = dict.fromkeys(trees, 0)
        for each in found:
            held[each.tree] += each.uid in self._roll.index
        most = max(held.values(), default=0)
        if self._tree in held and (held[self._tree] or not most):
            return self._tree
        best = [tree for tree in trees if held[tree] == most]
        if most and len(best) > 1:  # what a change of the cgroup driver left behind is empty
            used = {each.tree for each in found if self._groups.populated(each.group)}
            best = [tree for tree in best if tree in used] or best
        return best[0] if best else None

    def _best_effort_root(self) -> str | None:
        if self._be_root is not None:
            return self._be_root
        if self.file is not None and self.file.state.be_root is not None:
            return self.file.state.be_root
        return None if self._tree is None else self._groups.best_effort(self._tree)

    def _record(self, facts: Inventory, *, static: bool) -> Inventory:
        """The node's part of the record: the kernel's word, the cluster's, the file's."""
        said: dict[str, Any] = {}
        if self.file is not None:
            said["cpu_ratio_permille"] = self.file.state.ratios.permille(self._base)
        if self._said is not None and self._said.reserved_cpus:
            said["reserved_cpus"] = self._said.reserved_cpus
        if self._node_object is not None and self._node_object.latest is not None:
            said |= self._node_object.latest.said
        if self.file is not None:
            said |= self.file.state.node
        capabilities = {**facts.capabilities, STATIC_CPUS: static}
        return replace(facts, capabilities=capabilities, **said)


def _tell(before: Joined, now: Joined) -> None:
    """Log what is newly refused or taken otherwise, a few lines at a time."""
    for old, new in ((before.refused, now.refused), (before.notes, now.notes)):
        fresh = [group for group in new if new[group] != old.get(group)]
        for group in fresh[:TOLD_MAX]:
            _LOG.warning("group %s %s", ascii(group), ascii(new[group]))
        if len(fresh) > TOLD_MAX:
            _LOG.warning("and %d more groups", len(fresh) - TOLD_MAX)
    if now.surplus and not before.surplus:
        _LOG.warning("%d pods more than a sample can name are left out", now.surplus)
