"""A pod of the API server as the evictor knows it; made from lightkube's object. Pure.

The mirror keeps one of each pod, and the executor makes one anew right before it asks. Classes,
opt-outs and the worth of work come from `agents`, as for the kubelet's pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.classes import PRIORITY_LABEL, QOS_LABEL, Classes, classify
from agents.eviction import labels as eviction
from agents.pod_requests import pod_request
from agents.workload import workload_of
from scheduler_bridge.kube import quantities

OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a node must have for the pod; amounts by Kubernetes' names, CPU in millicores."""

    requests: dict[str, int] = field(default_factory=dict)
    selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[tuple[str, str, str, str], ...] = ()  # key, operator, value, effect
    tied: bool = False  # affinity, spread or local data: only the scheduler can tell where it fits


@dataclass(frozen=True, slots=True)
class LivePod:
    """One pod. ``maker`` is the uid of its controller, "" without one; times are wall ms."""

    uid: str
    namespace: str
    name: str
    node: str
    classes: Classes
    may_go: bool  # by what it says of itself
    features: frozenset[str] | None  # only these may evict it; None: any
    workload: str
    maker: str = ""
    maker_kind: str = ""
    terminating: bool = False
    over: bool = False
    ready: bool = False
    created_ms: int = 0
    needs: Needs = Needs()
    said: dict[str, Any] = field(default_factory=dict)  # of its eviction: `labels.facts`

    @property
    def active(self) -> bool:
        return not (self.terminating or self.over)


def live_pod(pod: Any) -> LivePod | None:
    """None for an object without the names that every pod has. ``pod``: lightkube's Pod."""
    about, spec, status = pod.metadata, pod.spec, pod.status
    if about is None or spec is None or not (about.uid and about.name and about.namespace):
        return None
    labels, notes = about.labels or {}, about.annotations or {}
    qos = (status.qosClass if status else None) or ""
    classes = classify(labels.get(QOS_LABEL), labels.get(PRIORITY_LABEL), spec.priority, qos)
    owner = next((each for each in about.ownerReferences or [] if each.controller), None)
    node = spec.nodeName or ""
    made_by = None if owner is None else (owner.kind, owner.name)
    return LivePod(
        uid=about.uid,
        namespace=about.namespace,
        name=about.name,
        node=node,
        classes=classes,
        may_go=eviction.may_go(classes, labels, notes),
        features=eviction.canonical(eviction.policies(notes.get(eviction.POLICIES_ANNOTATION))),
        workload=workload_of(about.namespace, about.name, node, made_by, labels),
        maker="" if owner is None else owner.uid,
        maker_kind="" if owner is None else owner.kind,
        terminating=about.deletionTimestamp is not None,
        over=(status.phase if status else "") in OVER,
        ready=_is_ready(status),
        created_ms=0
        if about.creationTimestamp is None
        else int(about.creationTimestamp.timestamp()) * 1000,
        needs=_needs(spec),
        said=eviction.facts(labels, notes),
    )


def _is_ready(status: Any) -> bool:
    conditions = (status.conditions if status else None) or ()
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def _needs(spec: Any) -> Needs:
    tolerations = tuple(
        (each.key or "", each.operator or "Equal", each.value or "", each.effect or "")
        for each in spec.tolerations or ()
    )
    affinity = spec.affinity
    tied = bool(
        affinity is not None
        and (affinity.nodeAffinity or affinity.podAffinity or affinity.podAntiAffinity)
    )
    tied = tied or bool(spec.topologySpreadConstraints)
    tied = tied or any(_is_local(volume) for volume in spec.volumes or ())
    return Needs(_requests(spec), dict(spec.nodeSelector or {}), tolerations, tied)


def _is_local(volume: Any) -> bool:
    """Data that stays on the node, or a claim that may be bound to it."""
    return volume.hostPath is not None or volume.persistentVolumeClaim is not None


def _requests(spec: Any) -> dict[str, int]:
    """What the pod asks for as a whole, with its overhead."""
    kinds = [
        ("sidecar" if each.restartPolicy == "Always" else "init", each)
        for each in spec.initContainers or ()
    ]
    kinds += [("main", each) for each in spec.containers or ()]
    asked = [(kind, _asked(each.resources)) for kind, each in kinds]
    over = {name: amount_of(name, said) for name, said in (spec.overhead or {}).items()}
    names = {name for _, amounts in asked for name in amounts} | over.keys()
    return {
        name: pod_request((kind, amounts.get(name, 0)) for kind, amounts in asked)
        + over.get(name, 0)
        for name in sorted(names)
    }


def _asked(resources: Any) -> dict[str, int]:
    """A limit without a request is the request too."""
    if resources is None:
        return {}
    said: Mapping[str, str] = {**(resources.limits or {}), **(resources.requests or {})}
    return {name: amount_of(name, quantity) for name, quantity in said.items()}


def amount_of(name: str, quantity: Any) -> int:
    """Millicores of CPU, whole units of all else, at most what counts. Raises ValueError."""
    read = quantities.milli if name == "cpu" else quantities.whole
    return quantities.at_most(read, str(quantity))
