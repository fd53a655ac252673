"""Family memory_evict: who goes when memory runs short."""

from __future__ import annotations

from agents.evict_memory import BestEffortPod, release_of, victims
from tests.conformance.adapters.common import Adapter, Vector, array


def release_by_usage(given: Vector) -> Vector:
    threshold, lower = given["threshold_percent"], given["lower_percent"]
    lower = threshold - 2 if lower is None else lower
    release = release_of(array(given["capacity"]), array(given["used"]), threshold, lower)
    return {"release": int(release[0])}


def memory_config_check(given: Vector) -> Vector:
    """Only the feature this law has: be_memory, by usage."""
    config = given["config"]
    if config is None or config["usage_threshold_percent"] is None:
        return {"valid": False}
    threshold, lower = config["usage_threshold_percent"], config["usage_lower_percent"]
    lower = threshold - 2 if lower is None else lower
    return {"valid": threshold >= 0 and lower < threshold}


def be_memory_order(pods: list[Vector]) -> list[str]:
    """Names in the law's order; the vectors' names stand for uids."""
    candidates = [
        BestEffortPod(p["name"], i, p["priority_value"] or 0, p["used"] or 0, True, False)
        for i, p in enumerate(pods)
        if p["qos_label"] == "BE" and p["phase"] in ("Running", "Pending")
    ]
    return [pod.uid for pod in victims(candidates, 1 << 60, len(candidates))]


def memory_evict(given: Vector) -> Vector:
    """A whole pass of the one feature this law has."""
    config, node = given["config"], given["node"]
    sequence: list[str] = []
    wanted = "be_memory" in given["features"] and (config or {}).get("enable")
    if wanted and memory_config_check({"config": config})["valid"] and node["capacity"] > 0:
        release = release_by_usage(
            {
                "capacity": node["capacity"], "used": given["node_used"],
                "threshold_percent": config["usage_threshold_percent"],
                "lower_percent": config["usage_lower_percent"],
            }
        )["release"]  # fmt: skip
        by_name = {pod["name"]: pod for pod in given["pods"]}
        for name in be_memory_order(given["pods"]):
            if release <= 0:
                break
            sequence.append(name)
            release -= by_name[name]["used"] or 0
    return {"peer_sequence": sequence}


ADAPTERS: dict[str, Adapter] = {
    "release_by_usage": release_by_usage,
    "evict": memory_evict,
}
