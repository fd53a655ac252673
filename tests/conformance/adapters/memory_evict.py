"""Family memory_evict: who goes when memory runs short."""

from __future__ import annotations

from functools import partial

from agents.eviction import order, plan, release
from tests.conformance.adapters import eviction
from tests.conformance.adapters.common import Adapter, Vector, array


def release_by_usage(given: Vector) -> Vector:
    marks = plan.usage_marks(plan.Rule(given["threshold_percent"], given["lower_percent"]))
    if marks is None:
        return {"release": 0}
    return {
        "release": int(release.by_usage(array(given["capacity"]), array(given["used"]), *marks)[0])
    }


def be_memory_order(given: Vector) -> Vector:
    pods = [eviction.candidate(pod, "request_bytes") for pod in given["pods"]]
    return {"order": [pod.uid for pod in order.by_size(pods)]}


def memory_evict(given: Vector) -> Vector:
    return eviction.sweep("memory", "request_bytes", given, 0)


ADAPTERS: dict[str, Adapter] = {
    "config_check": partial(eviction.config_check, "memory"),
    "release_by_usage": release_by_usage,
    "release_by_allocatable": partial(eviction.by_allocatable, "memory", "request_bytes"),
    "victim_order": partial(eviction.victim_order, "request_bytes"),
    "be_victim_order": be_memory_order,
    "evict": memory_evict,
    "multi_task_release": eviction.multi_task_release,
    "evict_policy_allowed": eviction.policy_allowed,
}
