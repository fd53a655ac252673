"""Labels, annotations and resources that admission reads and writes, spelt as the peer spells them.

Read by every module of this package. Names of our own begin with `slackwater.io/`. Labels of
classes stand in `agents.classes`, those of eviction in `agents.eviction.labels`.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_bridge.settings import (
    CPU_NAME,
    MEMORY_NAME,
    MID_CPU_NAME,
    MID_MEMORY_NAME,
    check_resource_names,
)

EXTENDED_SPEC = "node.koordinator.sh/extended-resource-spec"
"""What containers ask for beyond native resources, as JSON: the container runtime sees no other."""

QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"

GANG_LABELS = ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name")
GANG_MIN_LABEL = "pod-group.scheduling.sigs.k8s.io/min-available"
GANG_ANNOTATION = "gang.scheduling.koordinator.sh/name"
GANG_MIN_ANNOTATION = "gang.scheduling.koordinator.sh/min-available"
GANG_WAIT_ANNOTATION = "gang.scheduling.koordinator.sh/waiting-time"

GANG_GATE = "slackwater.io/gang"
"""The scheduling gate of a gang's members; the leader takes it away, from all of them."""
DRAWN_ANNOTATION = "slackwater.io/profiles-drawn"
"""Which profiles of less than 100 percent took the pod: a second call draws no other lot."""
NAMESPACE_LABEL = "slackwater.io/admission"
NAMESPACE_VALUE = "enabled"
"""A namespace with this label: all its pods are looked at, for profiles may choose any of them."""
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
"""Never looked at: what runs the cluster must not wait for us."""

CPU, MEMORY = "cpu", "memory"
NATIVE = (CPU, MEMORY)


@dataclass(frozen=True, slots=True)
class Resources:
    """Names of the extended resources; CPU counts in thousandths, memory in bytes."""

    batch_cpu: str = CPU_NAME
    batch_memory: str = MEMORY_NAME
    mid_cpu: str = MID_CPU_NAME
    mid_memory: str = MID_MEMORY_NAME

    def __post_init__(self) -> None:
        check_resource_names(self.each)

    @property
    def each(self) -> tuple[str, str, str, str]:
        return self.batch_cpu, self.batch_memory, self.mid_cpu, self.mid_memory

    def of_class(self, priority_class: str) -> dict[str, str]:
        """Native name to that of the class; empty for classes that have none of their own."""
        if priority_class == "batch":
            return {CPU: self.batch_cpu, MEMORY: self.batch_memory}
        if priority_class == "mid":
            return {CPU: self.mid_cpu, MEMORY: self.mid_memory}
        return {}


DEFAULT_RESOURCES = Resources()
