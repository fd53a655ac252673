"""A node of the API server as migration knows it; made from lightkube's object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler_bridge.evictions.pod import Needs, amount_of
from scheduler_bridge.kube.node_status import LABEL, REFUSED
from schemas.policy import ANNOTATION

HARD = ("NoSchedule", "NoExecute")
Taint = tuple[str, str, str]
"""Key, value, effect."""


@dataclass(frozen=True, slots=True)
class LiveNode:
    """``open``: new pods may be placed on it; amounts by Kubernetes' names, CPU in millicores."""

    name: str
    open: bool = True
    labels: dict[str, str] = field(default_factory=dict)
    annotation: str = ""  # its own layer of the policy
    taints: tuple[Taint, ...] = ()
    allocatable: dict[str, int] = field(default_factory=dict)

    def accepts(self, needs: Needs) -> bool:
        """Whether labels and taints let such a pod in; amounts are counted elsewhere."""
        if needs.tied or any(self.labels.get(k) != v for k, v in needs.selector.items()):
            return False
        return all(
            taint[2] not in HARD or any(_tolerates(each, taint) for each in needs.tolerations)
            for taint in self.taints
        )


def live_node(node: Any) -> LiveNode | None:
    """None without a name. ``node``: lightkube's Node. Raises ValueError for a bad amount."""
    about, spec, status = node.metadata, node.spec, node.status
    if about is None or not about.name:
        return None
    labels = dict(about.labels or {})
    conditions = (status.conditions if status else None) or ()
    ready = any(each.type == "Ready" and each.status == "True" for each in conditions)
    said: Mapping[str, Any] = (status.allocatable if status else None) or {}
    return LiveNode(
        name=about.name,
        open=ready and not (spec and spec.unschedulable) and labels.get(LABEL) != REFUSED,
        labels=labels,
        annotation=(about.annotations or {}).get(ANNOTATION, ""),
        taints=tuple(
            (each.key, each.value or "", each.effect)
            for each in (spec.taints if spec else None) or ()
        ),
        allocatable={name: amount_of(name, amount) for name, amount in said.items()},
    )


def _tolerates(toleration: tuple[str, str, str, str], taint: Taint) -> bool:
    key, operator, value, effect = toleration
    if effect and effect != taint[2]:
        return False
    if operator == "Exists":
        return key in ("", taint[0])
    return key == taint[0] and value == taint[1]
