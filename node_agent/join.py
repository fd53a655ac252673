"""Groups and names joined: which pod of which source is where, of what class, with what inside.

`node_agent.discovery` calls `join` when something has changed. Everything is looked up by uid. What
only the groups say: a class, no name, and nothing of a wish to be evicted, so such a pod is never a
victim. What only the kubelet says: where its group is going to be. Each pod that cannot be taken is
named with the reason, and harms no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from node_agent.cgroup.names import CLASS_OF_KUBERNETES, QOS_OF_CLASS, pod_group
from node_agent.cgroup.paths import GroupPathError, normal_group
from node_agent.containers import Container
from node_agent.inventory import Pod, check_place
from node_agent.kubelet.cpu_manager import NOTHING, Pinned
from node_agent.kubelet.roll import Roll, spelt
from node_agent.pod_groups import PodGroup
from schemas.packed import MAX_PODS
from schemas.records import PodFact

if TYPE_CHECKING:
    from node_agent.kubelet.facts import KubePod


@dataclass(frozen=True, slots=True)
class Known:
    """What the sources say at one moment."""

    groups: Sequence[PodGroup] = ()  # of kubelets
    roll: Roll = field(default_factory=Roll)
    others: Mapping[str, PodFact] = field(default_factory=dict)  # by group: rules
    written: Sequence[Pod] = ()  # of the inventory file; its word counts before all others
    be_root: str | None = None
    tree: str | None = None  # of the kubelet that is asked
    pinned: Pinned = NOTHING
    containers: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    zones: Mapping[int, int] = field(default_factory=dict)  # NUMA node -> place of its zone


@dataclass(slots=True)
class Joined:
    """The pods, and why others are not among them, or not as they say (by group)."""

    pods: list[Pod] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    surplus: int = 0  # more than a sample can name


def join(known: Known, populated: Callable[[str], bool]) -> Joined:
    """One state of the machine; ``populated`` says of a group whether anything runs in it."""
    result = Joined()
    pods = [*known.written, *_of_kubelets(known, populated, result), *_to_come(known)]
    pods += [Pod(fact, group) for group, fact in known.others.items()]
    inner = {parent for pod in pods for parent in parents(pod.group)}
    groups: dict[str, Pod] = {}
    uids: dict[str, Pod] = {}
    for pod in pods:
        if pod.group in groups:
            continue  # an earlier source has spoken of this group
        placed = _in_place(pod, known, result)
        trouble = _unusable(pod.group) or check_place(placed, known.be_root)
        if pod.group in inner:
            trouble = "contains groups that are pods themselves"
        elif pod.fact.uid in uids and pod.group in known.others:
            # A tenant may take the name of another's container: the path is nobody else's.
            placed = replace(placed, fact=replace(placed.fact, uid=pod.group))
        elif pod.fact.uid in uids:
            trouble = f"has the uid of {uids[pod.fact.uid].group!r}"
        if trouble is not None:
            result.refused[pod.group] = trouble
            continue
        groups[pod.group] = uids[placed.fact.uid] = placed
        result.pods.append(placed)
    _bound(result)
    return result


def _bound(result: Joined) -> None:
    """No more pods than a sample can say; best-effort ones go first, for their root bounds them."""
    result.surplus = max(0, len(result.pods) - MAX_PODS)
    if result.surplus:
        result.pods = sorted(result.pods, key=lambda pod: pod.best_effort)[:MAX_PODS]


def parents(group: str) -> Iterator[str]:
    """The groups above one, without the hierarchy's root."""
    while "/" in group:
        group = group.rpartition("/")[0]
        yield group


def wanted_ids(kube: KubePod | None) -> frozenset[str]:
    """Ids of the containers that should have a group."""
    if kube is None:
        return frozenset()
    return frozenset(each.id for each in kube.containers if each.id and each.kind != "init")


def _unusable(group: str) -> str | None:
    """Why a group's name cannot be said: anybody who may make groups may name them."""
    try:
        normal_group(group)
    except GroupPathError as error:
        return str(error)
    return None


def _of_kubelets(
    known: Known, populated: Callable[[str], bool], result: Joined
) -> Iterator[Pod]:  # fmt: skip
    """Pods whose group stands. Of several groups of one pod the one where something runs."""
    by_uid: dict[str, list[PodGroup]] = {}
    named = {*known.others, *(pod.group for pod in known.written)}
    for found in known.groups:
        above = None if found.uid in known.roll.index else _first_in(named, parents(found.group))
        if above is not None:  # what a pod makes in its own group does not hide it
            result.refused[found.group] = f"lies in the group of the pod {above!r}"
            continue
        by_uid.setdefault(found.uid, []).append(found)
    for uid, several in by_uid.items():
        chosen = several[0]
        if len(several) > 1:
            several.sort(key=lambda each: each.tree != known.tree)  # ours first
            chosen = next((each for each in several if populated(each.group)), several[0])
        for each in several:
            if each is not chosen:
                result.refused[each.group] = f"has the uid of {chosen.group!r}"
        yield _pod(known, chosen.group, chosen, known.roll.index.get(uid))


def _first_in(named: set[str], groups: Iterator[str]) -> str | None:
    return next((group for group in groups if group in named), None)


def _to_come(known: Known) -> Iterator[Pod]:
    """Pods that were given to this node and have no group yet: their requests count already."""
    if known.tree is None:
        return
    standing = {found.uid for found in known.groups}
    for kube in known.roll.pods():
        if kube.over or any(spelt(key) in standing for key in kube.keys):
            continue
        class_of = CLASS_OF_KUBERNETES.get(kube.kubernetes_qos)
        if class_of is not None:
            group = pod_group(known.tree, class_of, kube.keys[-1])
            yield _pod(known, group, None, kube)


def _pod(known: Known, group: str, found: PodGroup | None, kube: KubePod | None) -> Pod:
    seen = known.containers.get(group, ())
    if kube is None:
        class_of = "" if found is None else found.class_of
        uid = group if found is None else found.uid
        fact = PodFact(uid=uid, name=uid, qos=QOS_OF_CLASS[class_of], evictable=False)
        return Pod(fact, group, tuple(Container(each, below) for each, below in seen))
    where = dict(seen)
    containers = [
        replace(
            each,
            group=where.pop(each.id, "") if each.id else "",
            cpus=known.pinned.cpus(kube.keys, each.name, each.id),
        )
        for each in kube.containers
    ]
    containers += [Container(each, below) for each, below in where.items()]
    fact = kube.fact
    own = fact.cpus or tuple(sorted({cpu for each in containers for cpu in each.cpus}))
    zones = tuple(sorted({known.zones[node] for node in fact.numa_nodes if node in known.zones}))
    over = kube.over or fact.terminating
    fact = replace(fact, cpus=own, numa_nodes=zones, terminating=over)
    return Pod(fact, group, tuple(containers))


def _in_place(pod: Pod, known: Known, result: Joined) -> Pod:
    """A pod that calls itself best-effort where nothing can bound it is taken for an online one."""
    kube = known.roll.index.get(spelt(pod.fact.uid))
    if kube is None or not pod.best_effort or check_place(pod, known.be_root) is None:
        return pod
    result.notes[pod.group] = "calls itself best-effort and is not below the best-effort root"
    return replace(pod, fact=replace(pod.fact, qos="LS"))
