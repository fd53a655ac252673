"""What the extender needs of a pod: what it asks for, of which class it is, where and since when.

Called for every pod of the mirror and for the pod of a question. Classes and sums are the law's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from lightkube.models.core_v1 import PodSpec, ResourceRequirements
from lightkube.resources.core_v1 import Pod

from agents.classes import PRIORITY_LABEL, QOS_LABEL, classify
from agents.inventory import LARGEST
from agents.placement import estimate
from agents.pod_requests import pod_request
from agents.table import ABSENT
from agents.workload import workload_of
from scheduler_bridge.extender.settings import Resources
from scheduler_bridge.kube import quantities
from schemas.records import PriorityClass

FACTORS_ANNOTATION = "scheduling.koordinator.sh/load-estimated-scaling-factors"
"""The peer's: JSON, percent by resource name, honoured where the policy lets pods choose."""
OVER = ("Succeeded", "Failed")
Amounts = tuple[int, int, int, int]


class PodRow(msgspec.Struct, frozen=True, gc=False):
    """One pod; amounts in millicores and bytes, times in ms, ABSENT where not said.

    ``asked`` and ``allowed`` (limits) are of its own class; ``borrows`` is batch CPU and memory,
    mid CPU and memory.
    """

    uid: str
    namespace: str
    name: str
    node: str
    workload: str
    priority_class: PriorityClass
    daemonset: bool
    over: bool
    asked: tuple[int, int]
    allowed: tuple[int, int]
    factors: tuple[int, int]
    borrows: Amounts
    scheduled_ms: int
    initialized_ms: int

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def holds(self) -> bool:
        """Whether it takes something of a node."""
        return bool(self.node) and not self.over


def read(pod: Pod, names: Resources) -> PodRow:
    """Raises ValueError for a quantity that is none."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if meta is None or spec is None:
        raise ValueError("a pod without metadata or spec; give a whole pod")
    labels = meta.labels or {}
    owner = next((one for one in meta.ownerReferences or () if one.controller), None)
    maker = (owner.kind, owner.name) if owner is not None else None
    namespace, name, node = meta.namespace or "", meta.name or "", spec.nodeName or ""
    kind = classify(
        labels.get(QOS_LABEL),
        labels.get(PRIORITY_LABEL),
        spec.priority,
        (status.qosClass if status is not None else "") or "Burstable",
    ).priority_class
    asked, allowed = _sums(spec, names, "requests"), _sums(spec, names, "limits")
    since = {
        one.type: _ms(one.lastTransitionTime)
        for one in (status.conditions if status is not None else None) or ()
        if one.status == "True"
    }
    return PodRow(
        uid=meta.uid or "",
        namespace=namespace,
        name=name,
        node=node,
        workload=workload_of(namespace, name, node, maker, labels),
        priority_class=kind,
        daemonset=maker is not None and maker[0] == "DaemonSet",
        over=status is not None and status.phase in OVER,
        asked=estimate.quantities(kind, asked),
        allowed=estimate.quantities(kind, allowed),
        factors=_factors(meta.annotations or {}),
        borrows=(
            *estimate.quantities("batch", asked),
            *estimate.quantities("mid", asked),
        ),
        scheduled_ms=since.get("PodScheduled", ABSENT),
        initialized_ms=since.get("Initialized", ABSENT),
    )


def _sums(spec: PodSpec, names: Resources, field: str) -> dict[str, int]:
    """What the whole pod asks for or is limited to, by the law's names; overhead included.

    At most `LARGEST` of each: the API server takes any number, and sums over pods stay numbers.
    """
    kinds = [
        ("sidecar" if one.restartPolicy == "Always" else "init", one.resources)
        for one in spec.initContainers or ()
    ]
    kinds += [("app", one.resources) for one in spec.containers]
    found = {}
    for name, resource in names.by_law.items():
        whole = _amount(_said(spec.resources, field), resource)
        each = [(kind, _amount(_said(one, field), resource)) for kind, one in kinds]
        total = whole or pod_request(each)
        if total:
            total += _amount(spec.overhead or {}, resource)
            found[name] = min(total, LARGEST)
    return found


def _said(one: ResourceRequirements | None, field: str) -> Mapping[str, str]:
    return (getattr(one, field) or {}) if one is not None else {}


def _amount(said: Mapping[str, str], resource: str) -> int:
    """Millicores of native CPU, whole units of all else: batch and mid CPU count in milli."""
    if resource not in said:
        return 0
    read_as = quantities.milli if resource == "cpu" else quantities.whole
    return quantities.at_most(read_as, str(said[resource]))


def _factors(notes: Mapping[str, str]) -> tuple[int, int]:
    """Percent of CPU and memory; what cannot be read was not said."""
    if FACTORS_ANNOTATION not in notes:
        return ABSENT, ABSENT
    try:
        said = msgspec.json.decode(notes[FACTORS_ANNOTATION], type=dict[str, int])
    except msgspec.MsgspecError:
        return ABSENT, ABSENT
    good = {key: value for key, value in said.items() if 0 <= value <= 1000}
    return good.get("cpu", ABSENT), good.get("memory", ABSENT)


def _ms(at: datetime | None) -> int:
    return int(at.timestamp() * 1000) if at is not None else ABSENT
