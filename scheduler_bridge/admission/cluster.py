"""What admission knows of the cluster: mirrors of pods, nodes, namespaces and priority classes.

Made by `service`; `webhook` and the keepers read it. Of each object only what is needed is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightkube.resources.core_v1 import Namespace, Node, Pod
from lightkube.resources.scheduling_v1 import PriorityClass

from scheduler_bridge.admission.names import GANG_LABELS, GANG_MIN_LABEL, QUOTA_LABEL, Resources
from scheduler_bridge.admission.pod import PodView, read
from scheduler_bridge.admission.profile import Priority
from scheduler_bridge.admission.room import NodeView, Wants, node_of, wants_of
from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeError, KubeMissing, translated
from scheduler_bridge.kube.mirror import Mirror

OLD_S = 180.0
"""A mirror that heard nothing for so long is not to be relied on; bookmarks come every 75 s."""
ASKED_S = 1.0
OURS = ("koordinator.sh/", "slackwater.io/", "kubernetes.io/config.")
LABELS = (*GANG_LABELS, GANG_MIN_LABEL, QUOTA_LABEL)


class RawPod(dict[str, Any]):
    """A pod as JSON: what the webhook reads too, so that one function reads both."""

    _api_info = Pod._api_info  # noqa: SLF001 - how the client finds the path of a kind


class RawNode(dict[str, Any]):
    """A node as JSON."""

    _api_info = Node._api_info  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class KeptPod:
    """A pod of the mirror. Labels and annotations of others are not kept."""

    view: PodView
    wants: Wants


class Cluster:
    """`run` it as a task. ``pods`` by namespace/name."""

    def __init__(self, kube: Kube, names: Resources) -> None:
        self._kube = kube
        self._names = names
        self.pods = Mirror(kube, RawPod, self._keep_pod)
        self.nodes = Mirror(kube, RawNode, _keep_node)
        self.namespaces = Mirror(kube, Namespace, _keep_namespace)
        self.classes = Mirror(kube, PriorityClass, _keep_class)
        self.total: dict[str, int] = {}
        """What all nodes together may give, by resource."""
        self.nodes.listen(self._node_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for mirror in self.mirrors:
                group.create_task(mirror.run())

    async def wait_synced(self) -> None:
        for mirror in self.mirrors:
            await mirror.wait_synced()

    @property
    def fresh(self) -> bool:
        """Whether all was listed, and heard of lately."""
        return self.age_s < OLD_S

    @property
    def age_s(self) -> float:
        """Of the mirror that was silent longest; infinite before all are there."""
        return max(mirror.age_s for mirror in self.mirrors)

    @property
    def priorities(self) -> Mapping[str, Priority]:
        return self.classes.objects

    async def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Of a namespace that the mirror may not know yet. None: nobody can say."""
        known = self.namespaces.objects.get(name)
        if known is not None:
            return known
        try:
            async with asyncio.timeout(ASKED_S):
                with translated(f"read namespace {name}"):
                    return _keep_namespace(await self._kube.api.get(Namespace, name))
        except (KubeError, KubeMissing, TimeoutError):
            return None

    @property
    def mirrors(self) -> tuple[Mirror[Any], ...]:
        return self.pods, self.nodes, self.namespaces, self.classes

    def _node_changed(self, _key: str, before: NodeView | None, after: NodeView | None) -> None:
        """Kept as a sum: nodes change a hundred times a second, and every pod asks for it."""
        for node, sign in ((before, -1), (after, 1)):
            for resource, amount in ({} if node is None else node.allocatable).items():
                self.total[resource] = self.total.get(resource, 0) + sign * amount

    def _keep_pod(self, pod: RawPod) -> KeptPod:
        about = pod["metadata"]
        for part in ("labels", "annotations"):
            about[part] = {
                key: value
                for key, value in (about.get(part) or {}).items()
                if key in LABELS or any(name in key for name in OURS)
            }
        return KeptPod(read(pod, self._names), wants_of(pod["spec"]))


def _keep_node(node: RawNode) -> NodeView:
    return node_of(node)


def _keep_namespace(namespace: Namespace) -> dict[str, str]:
    assert namespace.metadata is not None
    return dict(namespace.metadata.labels or {})


def _keep_class(found: PriorityClass) -> Priority:
    return Priority(found.value or 0, found.preemptionPolicy or "PreemptLowerPriority")
