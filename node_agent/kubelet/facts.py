"""A pod of the kubelet's list as the agent knows it: its facts, its containers, its directory.

`node_agent.kubelet.watch` calls `read` for each answer. Classes come from `agents.classes`, what
the pod says of its eviction from `agents.eviction.labels`. Nothing that a tenant writes raises: a
pod whose names cannot be used is left out, an annotation that cannot be read was not said.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec

from agents.classes import PRIORITY_LABEL, QOS_LABEL, classify
from agents.eviction import labels as eviction
from agents.lending.reserved import cpus_of
from agents.pod_requests import kubernetes_qos
from agents.workload import workload_of
from node_agent.cgroup.names import container_id
from node_agent.containers import Container
from node_agent.kubelet import requests, wire
from schemas.records import BurstWish, PodFact

BURST_ANNOTATION = "koordinator.sh/cpuBurst"
PLACE_ANNOTATION = "scheduling.koordinator.sh/resource-status"
HASH_ANNOTATION = "kubernetes.io/config.hash"
CONTAINERS_MAX = 256
"""Of one pod, whose groups are looked for; all of them count in its sums."""
NAME_CHARACTERS = 253
NAMED_MAX = 8
DOUBTFUL_MILLI = 100
_BURSTS = {
    "none": "none",
    "cpuBurstOnly": "cpu_burst_only",
    "cfsQuotaBurstOnly": "cfs_quota_burst_only",
    "auto": "auto",
}
_OVER = ("Succeeded", "Failed")


class KubePod(NamedTuple):
    """One pod; ``keys`` are what its directory may be called, ``kubernetes_qos`` says under which
    class it lies. ``over``: its containers have all ended. Containers have no group yet.
    """

    fact: PodFact
    keys: tuple[str, ...]
    kubernetes_qos: str
    over: bool
    containers: tuple[Container, ...]


class Answer(NamedTuple):
    """One answer of the kubelet; a few of the pods left out, and of those that may not mean what
    they say, by name with the reason.
    """

    pods: tuple[KubePod, ...]
    left_out: int
    refused: tuple[str, ...]
    doubts: tuple[str, ...] = ()


class _Node(msgspec.Struct):
    node: int


class _Place(msgspec.Struct):
    cpuset: str = ""
    numaNodeResources: list[_Node] | None = None  # noqa: N815  (the wire's name)


class _Burst(msgspec.Struct):
    policy: str | None = None
    cpuBurstPercent: int | None = None  # noqa: N815
    cfsQuotaBurstPercent: int | None = None  # noqa: N815
    cfsQuotaBurstPeriodSeconds: int | None = None  # noqa: N815


def read(raw: bytes) -> Answer:
    """The pods of an answer. Raises `wire.BadAnswer` when it is no list of pods."""
    listed = wire.pods(raw)
    found: dict[str, KubePod] = {}
    refused: list[str] = []
    for each in listed.pods:
        trouble = _trouble(each.metadata)
        if trouble is None and each.metadata.uid in found:
            trouble = "comes twice"
        if trouble is not None:
            refused.append(f"{each.metadata.uid[:NAME_CHARACTERS]!r} {trouble}")
        else:
            found[each.metadata.uid] = kube_pod(each)
    pods = _settle_keys(found)
    doubts = [doubt for pod in pods if (doubt := _doubt(pod))]
    left_out = listed.unread + len(refused)
    return Answer(pods, left_out, tuple(refused[:NAMED_MAX]), tuple(doubts[:NAMED_MAX]))


def kube_pod(pod: wire.Pod) -> KubePod:
    """One pod whose names are good."""
    about, status = pod.metadata, pod.status
    labels, notes = about.labels or {}, about.annotations or {}
    kubernetes_qos = status.qosClass or _qos_of(pod)
    classes = classify(
        labels.get(QOS_LABEL), labels.get(PRIORITY_LABEL), pod.spec.priority, kubernetes_qos
    )
    ids = {
        each.name: _id(each.containerID)
        for each in (*(status.initContainerStatuses or ()), *(status.containerStatuses or ()))
    }
    containers = tuple(
        Container(
            id=ids.get(spec.name, ""),
            group="",
            name=spec.name[:NAME_CHARACTERS],
            kind=kind,
            requests=requests.amounts(asked.requests),
            limits=requests.amounts(asked.limits),
        )
        for spec, kind, asked in requests.by_container(pod)
    )
    sums = ((each.kind, each.requests, each.limits) for each in containers)
    cpus, numa_nodes = _place(notes.get(PLACE_ANNOTATION))
    config = notes.get(HASH_ANNOTATION) or notes.get(eviction.MIRROR_ANNOTATION) or ""
    fact = PodFact(
        uid=about.uid,
        name=about.name,
        namespace=about.namespace,
        workload=_workload(pod),
        qos=classes.qos,
        qos_said=bool(classes.qos_raw),
        priority_class=classes.priority_class,
        priority=classes.priority,
        evictable=eviction.may_go(classes, labels, notes),
        terminating=about.deletionTimestamp is not None,
        numa_nodes=numa_nodes,
        cpus=cpus,
        cpu_burst=_burst(notes.get(BURST_ANNOTATION)),
        **requests.of_pod(pod, sums, classes.priority_class),
        **eviction.facts(labels, notes),
    )
    keys = tuple(dict.fromkeys(key for key in (about.uid, config) if _name(key)))
    over = status.phase in _OVER
    return KubePod(fact, keys, kubernetes_qos, over, containers[:CONTAINERS_MAX])


def _doubt(pod: KubePod) -> str:
    """Cores written where thousandths are counted: a pod of batch-cpu 8 gets next to nothing."""
    for each in pod.containers:
        for said in (each.requests, each.limits):
            for amount, resource in (
                (said.batch_cpu_milli, "batch-cpu"), (said.mid_cpu_milli, "mid-cpu"),
            ):  # fmt: skip
                if 0 < amount < DOUBTFUL_MILLI:
                    return (
                        f"{pod.fact.namespace}/{pod.fact.name} says {resource} {amount}, which is"
                        f" {amount} thousandths of a CPU; write {amount * 1000} for {amount} CPUs"
                    )
    return ""


def _trouble(about: wire.Metadata) -> str | None:
    """Why a pod's names cannot be used, or None."""
    for what, text in (("uid", about.uid), ("name", about.name)):
        if not _name(text):
            return f"has a {what} that cannot be used: {text[:NAME_CHARACTERS]!r}"
    if about.namespace and not _name(about.namespace):
        return "has a namespace that cannot be used"
    return None


def _name(text: str) -> bool:
    """Whether it may stand in a path, a key and a line of a log."""
    short = 0 < len(text) <= NAME_CHARACTERS
    return short and text.isprintable() and text.isascii() and not set(text) & set("/ \\")


def _settle_keys(found: dict[str, KubePod]) -> tuple[KubePod, ...]:
    """Hashes that name one pod alone stay keys; anybody may write such an annotation.

    The API's image of a static pod is left out beside the pod itself, whose uid is the hash.
    """
    claims = Counter(key for pod in found.values() for key in pod.keys[1:])
    settled: list[KubePod] = []
    for pod in found.values():
        keys = pod.keys[:1]
        for key in pod.keys[1:]:
            itself = found.get(key)
            if itself is None and claims[key] == 1:
                keys += (key,)
            elif itself is not None and _full_name(itself) == _full_name(pod):
                keys = ()
        if keys:
            settled.append(pod._replace(keys=keys))
    return tuple(settled)


def _full_name(pod: KubePod) -> tuple[str, str]:
    return pod.fact.namespace, pod.fact.name


def _id(said: str | None) -> str:
    """The id without the runtime's name; "" when there is none that could be a directory."""
    return container_id((said or "").rpartition("//")[2]) or ""


def _qos_of(pod: wire.Pod) -> str:
    """The class as Kubernetes computes it, for a kubelet that has not said it yet."""
    every = (*pod.spec.containers, *(pod.spec.initContainers or ()))
    each = [spec.resources or wire.Asked() for spec in every]
    if pod.spec.resources is not None:
        each = [pod.spec.resources]
    pairs: list[tuple[int, int]] = []
    for asked in each:
        limits = requests.amounts(asked.limits)
        said = requests.amounts({**(asked.limits or {}), **(asked.requests or {})})
        pairs.append((said.cpu_milli, limits.cpu_milli))
        pairs.append((said.memory_bytes, limits.memory_bytes))
    return kubernetes_qos(pairs)


def _workload(pod: wire.Pod) -> str:
    """Who made it, the same for all its pods on all nodes and after a rollout."""
    about = pod.metadata
    owner = next((o for o in about.ownerReferences or [] if o.controller), None)
    made_by = None if owner is None or not _name(owner.name) else (owner.kind, owner.name)
    place = pod.spec.nodeName or ""
    return workload_of(about.namespace, about.name, place, made_by, about.labels or {})


def _place(annotation: str | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(CPUs, NUMA nodes) that a scheduler gave the pod, as it noted them."""
    said = wire.noted(annotation, _Place)
    if said is None:
        return (), ()
    try:
        cpus = tuple(sorted(cpus_of(said.cpuset))) if said.cpuset else ()
    except ValueError:
        cpus = ()
    nodes = {each.node for each in said.numaNodeResources or [] if each.node >= 0}
    return cpus, tuple(sorted(nodes))


def _burst(annotation: str | None) -> BurstWish | None:
    said = wire.noted(annotation, _Burst)
    if said is None:
        return None
    policy = None if said.policy is None else _BURSTS.get(said.policy)
    try:
        return msgspec.convert(
            {
                "policy": policy,
                "cpu_burst_percent": said.cpuBurstPercent,
                "quota_burst_percent": said.cfsQuotaBurstPercent,
                "quota_burst_period_s": said.cfsQuotaBurstPeriodSeconds,
            },
            BurstWish,
        )
    except msgspec.ValidationError:
        return None
