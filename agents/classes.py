"""Effective QoS and priority class of a pod, and the roles that follow from them.

Asked by `agents.inventory` once a pod set. The ranges and defaults are the peer's
(koordinator `apis/extension/priority.go`, `qos.go`).
"""

from __future__ import annotations

from schemas.records import PodFact, PriorityClass, Qos

ONLINE, BEST_EFFORT, HOST, HIGH, LSE, EVICTABLE, TERMINATING, MID = (1 << i for i in range(8))
"""Bits of a pod's role: exactly one of ONLINE and BEST_EFFORT is set; MID only beside HIGH."""

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


def priority_class_of(pod: PodFact) -> PriorityClass:
    """The class as said, else by the number's range, else by QoS: BE is batch, all else prod."""
    if pod.priority_class:
        return pod.priority_class
    for low, high, name in PRIORITY_RANGES:
        if low <= pod.priority <= high:
            return name
    return "batch" if pod.qos == "BE" else "prod"


def qos_of(pod: PodFact) -> Qos:
    """The QoS as said; a pod that says nothing is taken for an online one (LS)."""
    return pod.qos or "LS"


def priority_of(pod: PodFact) -> int:
    """The number as said, else the default of the class."""
    return pod.priority or DEFAULT_PRIORITY[priority_class_of(pod)]


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
