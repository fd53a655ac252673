"""Who may be evicted: the one place where a `Victim` is made, and `api` takes nothing else.

An online pod is refused by type: it has no way to become one. Called with the live pod right
before each call, and with the mirror's for those that the bridge chooses itself.
"""

from __future__ import annotations

from agents.eviction.labels import FEATURES
from scheduler_bridge.evictions.pod import LivePod
from schemas.records import EvictionSource

_KEY = object()
OF_SOURCE: dict[EvictionSource, frozenset[str]] = {
    "evict_memory": frozenset(name for name in FEATURES if "memory" in name),
    "evict_cpu": frozenset(name for name in FEATURES if "cpu" in name),
    "quota": frozenset({"quota"}),
    "low_node_load": frozenset({"low_node_load"}),
}
"""Which words of a pod's own list of features let each source evict it."""


class NotAVictim(Exception):
    """``reason`` is a stable code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Victim:
    """A best-effort pod that may be evicted, as it was a moment ago."""

    __slots__ = ("name", "namespace", "uid")

    def __init__(self, key: object, pod: LivePod) -> None:
        """Only `victim` holds the key. Raises TypeError for everybody else."""
        if key is not _KEY:
            raise TypeError("a Victim is made by victim.victim only")
        self.uid, self.namespace, self.name = pod.uid, pod.namespace, pod.name


def refusal(pod: LivePod, source: EvictionSource) -> str:
    """Why the pod may not be evicted for this source; "" when it may.

    Best effort is who says so or asks for nothing, and neither is nor calls itself prod.
    """
    if pod.classes.qos != "BE" or pod.classes.priority_class == "prod":
        return "not_best_effort"
    if not pod.may_go:
        return "opted_out"
    if pod.features is not None and not pod.features & OF_SOURCE[source]:
        return "opted_out"
    return ""


def victim(pod: LivePod, source: EvictionSource) -> Victim:
    """Raises NotAVictim."""
    reason = refusal(pod, source)
    if reason:
        raise NotAVictim(reason)
    return Victim(_KEY, pod)
