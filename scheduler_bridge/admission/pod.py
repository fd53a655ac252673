"""What admission needs to know of a pod, read from its JSON as the API server sends it. Pure.

Called for the pod of a review, before and after it was changed, and for each pod of the mirror.
Classes and sums are the law's (`agents.classes`, `agents.pod_requests`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.classes import PRIORITY_LABEL, QOS_LABEL, Classes, classify
from agents.eviction import labels as eviction
from agents.pod_requests import kubernetes_qos, pod_request
from agents.pod_rules import Claim
from scheduler_bridge.admission.names import (
    CPU,
    EXTENDED_SPEC,
    MEMORY,
    NATIVE,
    Resources,
)
from scheduler_bridge.admission.noted import of_note
from scheduler_bridge.kube import quantities

Document = Mapping[str, Any]
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod. ``requests`` by resource name: CPU in thousandths, all else whole, absent is none.

    ``wish``: the native amounts that a free pod's note says; ``gates``: names, in their order.
    """

    uid: str
    namespace: str
    name: str
    classes: Classes
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    requests: Mapping[str, int]
    wish: Mapping[str, int]
    sub_priority: str
    node: str = ""
    phase: str = ""
    going: bool = False
    gates: tuple[str, ...] = ()
    created: str = ""

    @property
    def over(self) -> bool:
        """Whether it holds nothing any more."""
        return self.phase in OVER

    def claim(self, names: Resources) -> Claim:
        """What it claims, as `agents.pod_rules` judges it."""
        return Claim(
            self.classes.qos_raw,
            self.classes.priority_raw,
            self.sub_priority,
            self.requests.get(CPU, 0),
            self.requests.get(names.batch_cpu, 0),
            self.requests.get(names.batch_memory, 0),
        )

    def recoverable(self) -> bool:
        """Whether it says that its work can be retried, or goes on from a checkpoint."""
        said = eviction.facts(self.labels, self.annotations)
        if said["recoverable"] is False or said["retries_left"] == 0:
            return False
        return bool(said["recoverable"] or said["checkpointed"] or said["retries_left"] > 0)


def read(pod: Document, names: Resources, namespace: str = "") -> PodView:
    """A pod of core/v1. Raises ValueError for a quantity that is none."""
    about, spec, status = _part(pod, "metadata"), _part(pod, "spec"), _part(pod, "status")
    labels, notes = about.get("labels") or {}, about.get("annotations") or {}
    kubernetes = status.get("qosClass") or qos_of(spec)
    classes = classify(
        labels.get(QOS_LABEL), labels.get(PRIORITY_LABEL), spec.get("priority"), kubernetes
    )
    free = classes.priority_class == "free"
    return PodView(
        uid=about.get("uid") or "",
        namespace=about.get("namespace") or namespace,
        name=about.get("name") or about.get("generateName") or "",
        classes=classes,
        labels=labels,
        annotations=notes,
        requests=requests_of(spec, (*NATIVE, *names.each)),
        wish=of_note(notes.get(EXTENDED_SPEC), NATIVE) if free else {},
        sub_priority=labels.get(eviction.SUB_PRIORITY_LABEL) or "",
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "",
        going=bool(about.get("deletionTimestamp")),
        gates=tuple(gate.get("name", "") for gate in spec.get("schedulingGates") or ()),
        created=about.get("creationTimestamp") or "",
    )


def containers_of(spec: Document) -> list[tuple[str, dict[str, Any]]]:
    """(kind, container): init containers first; one that restarts always is a sidecar."""
    return [
        *(
            ("sidecar" if one.get("restartPolicy") == "Always" else "init", one)
            for one in spec.get("initContainers") or ()
        ),
        *(("app", one) for one in spec.get("containers") or ()),
    ]


def requests_of(spec: Document, resources: tuple[str, ...]) -> dict[str, int]:
    """What the whole pod asks for of each resource, overhead included; a limit alone asks too."""
    kinds = containers_of(spec)
    overhead, whole = spec.get("overhead") or {}, spec.get("resources") or {}
    found: dict[str, int] = {}
    for resource in resources:
        asked = [(kind, _asked(one.get("resources") or {}, resource)) for kind, one in kinds]
        total = _asked(whole, resource) or pod_request(asked)
        total += amount(overhead.get(resource), resource)
        if total > 0:
            found[resource] = total
    return found


def amount(said: object, resource: str) -> int:
    """Thousandths of native CPU, whole units of all else; 0 when nothing is said."""
    if said is None:
        return 0
    read_as = quantities.milli if resource == CPU else quantities.whole
    return quantities.at_most(read_as, str(said))


def qos_of(spec: Document) -> str:
    """The class that Kubernetes will give the pod."""
    each = [one.get("resources") or {} for _, one in containers_of(spec)]
    if spec.get("resources"):
        each = [spec["resources"]]
    pairs = [
        (_asked(one, resource), amount((one.get("limits") or {}).get(resource), resource))
        for one in each
        for resource in (CPU, MEMORY)
    ]
    return kubernetes_qos(pairs)


def _asked(said: Document, resource: str) -> int:
    requests, limits = said.get("requests") or {}, said.get("limits") or {}
    return amount(requests.get(resource, limits.get(resource)), resource)


def _part(pod: Document, name: str) -> Document:
    return pod.get(name) or {}
