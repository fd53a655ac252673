"""Effective QoS and priority class of a pod, and the roles that follow from them.

Asked by `agents.inventory` once a pod set, and by `agents.pod_rules` for what a pod may claim. One
table of names, ranges and defaults stands behind both; it is the peer's (koordinator
`apis/extension/priority.go`, `priority_utils.go`, `qos.go`, `qos_utils.go`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.table import Array, Ints
from schemas.records import PodFact, PriorityClass, Qos

ONLINE, BEST_EFFORT, HOST, HIGH, LSE, EVICTABLE, TERMINATING, MID = (1 << i for i in range(8))
"""Bits of a pod's role: exactly one of ONLINE and BEST_EFFORT is set; MID only beside HIGH."""

QOS_LABEL = "koordinator.sh/qosClass"
PRIORITY_LABEL = "koordinator.sh/priority-class"
"""Under which labels a Kubernetes pod says its classes."""
PRIORITY_RANGES: tuple[tuple[int, int, PriorityClass], ...] = (
    (9000, 9999, "prod"),
    (7000, 7999, "mid"),
    (5000, 5999, "batch"),
    (3000, 3999, "free"),
)
"""Inclusive; every other number is of no class."""
DEFAULT_PRIORITY: dict[PriorityClass, int] = {
    "prod": 9500,
    "mid": 7500,
    "batch": 5500,
    "free": 3500,
    "": 0,
}
"""Stands for a number that was not said."""
QOS_LABELS: dict[str, Qos] = {
    "LSE": "LSE",
    "LSR": "LSR",
    "LS": "LS",
    "BE": "BE",
    "SYSTEM": "SYSTEM",
}
"""What a label may say; any other text says nothing."""
PRIORITY_LABELS: dict[str, PriorityClass] = {name: name for _, _, name in PRIORITY_RANGES}
QOS_OF_KUBERNETES: dict[str, Qos] = {"Guaranteed": "LSR", "Burstable": "LS", "BestEffort": "BE"}
"""Stands for a QoS that no label says."""


@dataclass(frozen=True, slots=True)
class Classes:
    """What a pod says of itself (raw; "" is nothing) and what it is taken for."""

    qos_raw: Qos
    qos: Qos
    priority_raw: PriorityClass
    priority_class: PriorityClass
    priority: int


def classify(
    qos_label: str | None, priority_label: str | None, priority: int | None, kubernetes_qos: str
) -> Classes:
    """Classes from labels (None: no such label), the number and the Kubernetes QoS class."""
    qos_raw: Qos = QOS_LABELS.get(qos_label or "", "")
    qos = qos_raw or QOS_OF_KUBERNETES.get(kubernetes_qos, "")
    priority_raw = raw_class(priority_label, priority)
    effective = class_or_default(priority_raw, qos)
    return Classes(qos_raw, qos, priority_raw, effective, number_or_default(priority, effective))


def raw_class(label: str | None, priority: int | None) -> PriorityClass:
    """The class a pod says: a label silences the number, also one that names no class."""
    if label is not None:
        return PRIORITY_LABELS.get(label, "")
    return class_of_number(priority)


def class_of_number(priority: int | None) -> PriorityClass:
    """The class whose range holds the number; "" for the gaps between them and for None."""
    if priority is not None:
        for low, high, name in PRIORITY_RANGES:
            if low <= priority <= high:
                return name
    return ""


def class_or_default(raw: PriorityClass, qos: Qos) -> PriorityClass:
    """The class as said, else by QoS: BE is batch, every other QoS prod, none stays none."""
    if raw or not qos:
        return raw
    return "batch" if qos == "BE" else "prod"


def number_or_default(priority: int | None, priority_class: PriorityClass) -> int:
    """The number as said; none and 0 stand for the default of the class."""
    return priority or DEFAULT_PRIORITY[priority_class]


def priority_class_of(pod: PodFact) -> PriorityClass:
    """The class as said, else by the number's range, else by QoS: BE is batch, all else prod."""
    return class_or_default(pod.priority_class or class_of_number(pod.priority), qos_of(pod))


def qos_of(pod: PodFact) -> Qos:
    """The QoS as said; a pod that says nothing is taken for an online one (LS)."""
    return pod.qos or "LS"


def priority_of(pod: PodFact) -> int:
    """The number as said, else the default of the class."""
    return number_or_default(pod.priority, priority_class_of(pod))


def roles_of(pod: PodFact) -> int:
    """Role bits. Best effort by the raw QoS alone; high unless its class is batch or free."""
    qos = qos_of(pod)
    bits = BEST_EFFORT if qos == "BE" else ONLINE
    if priority_class_of(pod) not in ("batch", "free"):
        bits |= HIGH
    if priority_class_of(pod) == "mid":
        bits |= MID
    if pod.host_app:
        bits |= HOST
    if qos == "LSE":
        bits |= LSE
    if pod.evictable:
        bits |= EVICTABLE
    if pod.terminating:
        bits |= TERMINATING
    return bits


def numbers_of(roles: Array) -> Ints:
    """The default number of the class that role bits tell [n]: prod, mid, or batch for the rest."""
    high = np.where(roles & MID, DEFAULT_PRIORITY["mid"], DEFAULT_PRIORITY["prod"])
    return np.where(roles & HIGH, high, DEFAULT_PRIORITY["batch"])
