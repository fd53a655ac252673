"""What the families memory_evict and cpu_evict share: candidates, rules, names of features."""

from __future__ import annotations

from msgspec.structs import replace

from agents.eviction import labels, order, plan
from agents.eviction.candidate import Candidate
from agents.eviction.passes import Amounts, Outcome, Task, run
from tests.conformance.adapters.common import Vector

FEATURES = {
    "be_memory": plan.BEST_EFFORT, "memory_allocatable": plan.ALLOCATABLE, "memory": plan.USAGE,
    "be_cpu": plan.BEST_EFFORT, "cpu_allocatable": plan.ALLOCATABLE, "cpu": plan.USAGE,
}  # fmt: skip


def candidate(pod: Vector, request: str) -> Candidate:
    named = labels.canonical(labels.policies(pod["evict_policy_annotation"]))
    number = pod["effective_priority"]
    return Candidate(
        uid=pod["name"],
        priority=number if number is not None else pod["priority_value"] or 0,
        used=pod["used"],
        request=pod.get(request) or 0,
        kind=pod["request_kind"] or "",
        best_effort=pod["qos_label"] == "BE",
        active=pod["phase"] in ("Running", "Pending"),
        opted_in=labels.opted_in(pod["evict_enabled_label"]),
        policies=named,
        eviction_priority=labels.eviction_priority(pod["eviction_priority_annotation"]),
        sub_priority=labels.sub_priority(pod["sub_priority_label"]),
    )


def rule(config: Vector | None) -> plan.Rule | None:
    if config is None:
        return None
    return plan.Rule(
        config["usage_threshold_percent"],
        config["usage_lower_percent"],
        config["usage_priority_threshold"],
        config["allocatable_threshold_percent"],
        config["allocatable_lower_percent"],
        config["allocatable_priority_threshold"],
        config.get("satisfaction_lower_percent"),
        config.get("satisfaction_upper_percent"),
    )


def config_check(resource: str, given: Vector) -> Vector:
    return {"valid": plan.is_valid(resource, FEATURES[given["feature"]], rule(given["config"]))}


def by_allocatable(resource: str, request: str, given: Vector) -> Vector:
    said = rule(given["config"])
    assert said is not None, "thresholds to release by"
    pods = [candidate(pod, request) for pod in given["pods"]]
    return {"release": plan.overdrawn(resource, said, given["allocatable"], pods)}


def victim_order(request: str, given: Vector) -> Vector:
    pods = [candidate(pod, request) for pod in given["pods"]]
    by_request = str(given.get("tie_break") or "used").startswith("request")
    found = order.by_priority(
        pods, given["feature"], given["priority_threshold"], by_request=by_request
    )
    return {"order": [pod.uid for pod in found]}


def sweep(resource: str, request: str, given: Vector, starved_milli: int) -> Vector:
    config, said = given["config"], given["node"]
    node = plan.Node(
        said["capacity"] or 0, int(given["node_used"] or 0), said["allocatable"], starved_milli
    )
    on = {FEATURES[name] for name in given["features"]} if (config or {}).get("enable") else set()
    names = {FEATURES[name]: name for name in FEATURES if name.endswith(resource)}
    names |= {plan.ALLOCATABLE: f"{resource}_allocatable"}
    pods = [candidate(pod, request) for pod in given["pods"]]
    going = given.get("already_evicting") or []
    pods = [replace(pod, going=pod.uid in going) for pod in pods]
    return {"peer_sequence": plan.sweep(resource, on, rule(config), node, pods, names).evicted}


def multi_task_release(given: Vector) -> Vector:
    releases: dict[str, dict[str, Amounts]] = {}
    tasks: list[Task] = []
    for task in given["tasks"]:
        for pod in task["pods"]:
            releases.setdefault(pod["name"], {}).update(pod["release"])
        names = [pod["name"] for pod in task["pods"]]
        tasks.append(Task(task["id"], task["target"], task["to_release"], names))
    done: Outcome = run(tasks, releases, given["already_evicting"])
    return {"evicted": done.evicted, "released": done.released}


def policy_allowed(given: Vector) -> Vector:
    return {"allowed": labels.allows(labels.policies(given["annotation"]), given["policy"])}
