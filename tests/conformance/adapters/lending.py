"""What the two families of lent resources share: nodes, pods and metrics as the law takes them."""

from __future__ import annotations

import numpy as np

from agents.classes import DEFAULT_PRIORITY, HIGH, LSE, MID, roles_of
from agents.lending.batch import degraded
from agents.lending.needs import host_use
from agents.lending.reserved import reserved, said_cpu_milli
from agents.table import ABSENT, Array, Ints
from schemas.records import PodFact
from tests.conformance.adapters.common import Vector, amounts, array

SECONDS_PER_MINUTE = 60
RESOURCES = ("cpu_m", "memory")
LISTED = ("Running", "Pending")


def pair(resources: Vector | None) -> Ints:
    """[1, 2] of one resource map."""
    return array(*amounts(resources))[None]


def known(resources: Vector | None) -> Ints:
    """The same, ABSENT where nothing is said."""
    said = resources or {}
    return array(*(ABSENT if said.get(name) is None else said[name] for name in RESOURCES))[None]


def reserved_of(node: Vector) -> Ints:
    said = node["reservation"] or {}
    milli, size = amounts(said.get("resources"))
    try:
        milli = said_cpu_milli(milli, said.get("reserved_cpus") or "")
    except ValueError:
        milli, size = 0, 0
    kept = zip(amounts(node["capacity"]), amounts(node["allocatable"]), (milli, size), strict=True)
    return array(*(reserved(*each) for each in kept))[None]


def system_of(metric: Vector, above: int) -> Ints:
    """[1, 2] of the system and of the host applications above a class."""
    apps = metric["host_apps"]
    usage = np.array([amounts(app["usage"]) for app in apps], dtype=np.int64).reshape(-1, 2)
    numbers = array(*(DEFAULT_PRIORITY[app["priority_class"] or ""] for app in apps))
    counted = host_use(usage, numbers, above)
    result: Ints = pair(metric["system_usage"]) + np.add.reduce(counted, axis=0, dtype=np.int64)
    return result


def listed(given: Vector) -> list[Vector]:
    return [pod for pod in given["pods"] if pod["phase"] in LISTED]


def is_high(pod: Vector) -> bool:
    return bool(_roles(pod) & HIGH)


def is_prod(pod: Vector) -> bool:
    return _roles(pod) & (HIGH | MID) == HIGH


def is_lse(pod: Vector) -> bool:
    return bool(_roles(pod) & LSE)


def _roles(pod: Vector) -> int:
    facts: Vector = {"qos": pod.get("qos_class") or "", "priority_class": pod["priority_class"]}
    return roles_of(PodFact("", "", **facts))


def too_old(age_seconds: float | None, minutes: int | None) -> bool:
    age: Array = np.array([ABSENT if age_seconds is None else max(age_seconds, 0)])
    return bool(degraded(age, SECONDS_PER_MINUTE * (minutes or 0))[0])


def degrade(given: Vector) -> Vector:
    age = given["age_seconds"] if given["metric_present"] else None
    return {"degrade": too_old(age, given["degrade_minutes"])}
