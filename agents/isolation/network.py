"""Network class of each pod, and what every class is promised and allowed of the bandwidth.

Three classes below the root of a hierarchical token bucket; a pod's traffic is marked with its
class. Order of classes: koordinator `apis/slo/v1alpha1/nodeslo_types.go` (netQOSPolicy tc).
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.isolation.by_class import Setting, among, pick
from agents.table import Ints
from schemas.policy import ClassNetwork, Network

MAJOR = 1 << 16
"""Handle of the root, as net_cls.classid writes it: 1:0."""
WHOLE_CLASS, SYSTEM_CLASS, ONLINE_CLASS, BE_CLASS = range(1, 5)
"""Minor numbers: the root's own class, and those below it; a lower number is served first."""
BITS_PER_PERCENT = 10_000
"""One percent of a Mbit/s."""
LEAST_BIT_PER_S = 8_000
"""A class that is promised nothing still has a rate: a token bucket takes no 0."""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """One class: bit/s promised and at most, outwards and inwards, and its turn (0: first)."""

    minor: int
    turn: int
    egress_min: int
    egress_max: int
    ingress_min: int
    ingress_max: int


def class_ids(qos: Ints, rule: Network) -> Setting:
    """net_cls.classid of each pod's group [n]."""
    minor = pick(qos, ONLINE_CLASS, ONLINE_CLASS, BE_CLASS, SYSTEM_CLASS)
    known = rule.total_mbit_per_s > 0
    online, be = known and rule.ls.enabled, known and rule.be.enabled
    on = among(qos, online, online, be, known and rule.system.enabled)
    return Setting(MAJOR + minor, on)


def bandwidths(rule: Network) -> list[Bandwidth]:
    """Every class that is switched on; none while the node's bandwidth is unknown."""
    if rule.total_mbit_per_s <= 0:
        return []
    classes = ((SYSTEM_CLASS, rule.system), (ONLINE_CLASS, rule.ls), (BE_CLASS, rule.be))
    return [
        _bandwidth(minor, section, rule.total_mbit_per_s)
        for minor, section in classes
        if section.enabled
    ]


def whole(rule: Network) -> Bandwidth:
    """What all classes share: the node's bandwidth, both ways."""
    total = rule.total_mbit_per_s * 100 * BITS_PER_PERCENT
    return Bandwidth(WHOLE_CLASS, 0, total, total, total, total)


def _bandwidth(minor: int, section: ClassNetwork, total_mbit_per_s: int) -> Bandwidth:
    one_percent = total_mbit_per_s * BITS_PER_PERCENT

    def least(percent: int) -> int:
        return max(percent * one_percent, LEAST_BIT_PER_S)

    def most(percent: int) -> int:
        return (percent or 100) * one_percent

    return Bandwidth(
        minor,
        minor - SYSTEM_CLASS,
        least(section.egress_min_percent),
        most(section.egress_max_percent),
        least(section.ingress_min_percent),
        most(section.ingress_max_percent),
    )
