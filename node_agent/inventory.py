"""Who is on this machine: node facts, pods and the group of each; what every source gives.

`Discovery` (discovery) is the source; the sampler and the actuators take a `Census`. The rules that
it obeys are here: a stable order by uid, one revision a state, best-effort pods strictly inside the
best-effort root and all others outside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from node_agent.cgroup.paths import overlaps, strictly_inside
from node_agent.containers import Container
from schemas.records import Inventory, PodFact


class InventoryError(ValueError):
    """An inventory that must not be used; the message names source, key and remedy."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod or host application: its facts and its group, relative to the hierarchies."""

    fact: PodFact
    group: str
    containers: tuple[Container, ...] = ()  # the named ones first; empty: none is known

    @property
    def best_effort(self) -> bool:
        """Whether it may be suppressed and evicted."""
        return self.fact.qos == "BE"


@dataclass(frozen=True, slots=True)
class Census:
    """One state of the machine: the record as published, and the group of each of its pods."""

    record: Inventory
    groups: tuple[str, ...]  # in the order of record.pods
    be_root: str | None  # the best-effort root group; None: no best-effort work here
    containers: tuple[tuple[Container, ...], ...] = ()  # of each pod; empty: of none is known
    daemons: str | None = None  # the group of the machine's daemons; None: nobody named it

    def pods(self) -> tuple[Pod, ...]:
        """Facts, groups and containers joined."""
        containers = self.containers or ((),) * len(self.groups)
        return tuple(map(Pod, self.record.pods, self.groups, containers))


class InventorySource(Protocol):
    """Called by the sampler before each sweep; cheap when nothing has changed."""

    def poll(self, mono_us: int) -> Census:
        """The state now; the same object as before when nothing has changed."""


def check_place(pod: Pod, be_root: str | None) -> str | None:
    """Why the pod's group is not where its class belongs, or None when it is."""
    if pod.best_effort:
        if be_root is None:
            return "is best-effort, but no best-effort root is set; name one (best_effort_root)"
        if not strictly_inside(pod.group, be_root):
            return f"is best-effort, but its group {pod.group!r} is not below {be_root!r}"
    elif be_root is not None and overlaps(pod.group, be_root):
        return (
            f"is not best-effort, but its group {pod.group!r} overlaps the best-effort root"
            f" {be_root!r}; move the group or set qos BE"
        )
    return None


class Revisions:
    """Turns states into `Census` objects: a new revision for each change, none without.

    Containers are no part of the record: other containers make another census of the same revision.
    """

    def __init__(self, first_rev: int) -> None:
        """``first_rev``: above those of earlier starts; the agent takes its wall clock in ms."""
        self._next_rev = first_rev
        self._latest: Census | None = None

    def census(
        self,
        facts: Inventory,
        pods: Iterable[Pod],
        be_root: str | None,
        daemons: str | None = None,
    ) -> Census:
        """The census of this state; ``facts`` brings the node's part, its pods are ignored."""
        ordered = sorted(pods, key=lambda pod: pod.fact.uid)
        record = replace(facts, pods=tuple(pod.fact for pod in ordered), pods_rev=0)
        groups = tuple(pod.group for pod in ordered)
        containers = tuple(pod.containers for pod in ordered)
        latest = self._latest
        if latest is not None:
            same = replace(latest.record, pods_rev=0) == record
            if same and latest.groups == groups and latest.be_root == be_root:
                if (latest.containers, latest.daemons) == (containers, daemons):
                    return latest
                self._latest = replace(latest, containers=containers, daemons=daemons)
                return self._latest
        record = replace(record, pods_rev=self._next_rev)
        self._latest = Census(record, groups, be_root, containers, daemons)
        self._next_rev += 1
        return self._latest
