"""How many pods may be on their way at once: by node, namespace, workload and fleet.

Called by the scheduler bridge's evictor for each pod that `relief` names. Rules and defaults:
koordinator `descheduler/controllers/migration/arbitrator/filter.go`, `util/util.go`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MANY, SOME = 10, 4
"""Pods of a workload: above the first a tenth may be on its way, from the second on two pods."""
TENTH = 10  # of a large workload, rounded down
OF_SOME = 2  # of a middling one


@dataclass(frozen=True, slots=True)
class Bounds:
    """Pods on their way at once; 0: no bound, for a workload: by its size."""

    per_node: int
    per_namespace: int
    per_workload: int
    fleet: int


@dataclass(frozen=True, slots=True)
class Flight:
    """A pod on its way."""

    uid: str
    node: str
    namespace: str
    workload: str


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload now. ``missing``: its pods that do not run or are not ready, by uid.

    ``moved``: how many of its pods were asked to leave within the pause.
    """

    pods: int
    missing: Collection[str] = ()
    moved: int = 0


def most_of(pods: int, said: int) -> int:
    """How many pods of a workload may be away at once; never more than it has."""
    if said:
        return min(said, pods)
    if pods > MANY:
        return pods // TENTH
    return min(OF_SOME if pods >= SOME else 1, pods)


def refusal(pod: Flight, flights: Collection[Flight], workload: Workload, bounds: Bounds) -> str:
    """What stands against one more; "" when nothing does. Equal to a bound is too many.

    A workload of one pod, or one that might lose all of them, is never touched.
    """
    most = most_of(workload.pods, bounds.per_workload)
    if workload.pods <= 1 or workload.pods <= most:
        return "few_pods"
    if len(flights) >= bounds.fleet:
        return "fleet_limit"
    if sum(one.node == pod.node for one in flights) >= bounds.per_node:
        return "node_limit"
    crowd = sum(one.namespace == pod.namespace for one in flights)
    if bounds.per_namespace and crowd >= bounds.per_namespace:
        return "namespace_limit"
    away = {one.uid for one in flights if one.workload == pod.workload}
    if len(away) >= most:
        return "workload_limit"
    if len(away.union(workload.missing)) >= most:
        return "workload_unavailable"
    return "workload_pause" if workload.moved >= most else ""
