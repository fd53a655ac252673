"""Family cpu_suppress: CPU of best-effort work."""

from __future__ import annotations

from agents.suppress import adjust, allow
from tests.conformance.adapters.common import Adapter, Vector, array

CORE_MILLI = 1000
PERIOD_US = 100_000
QUOTA_FLOOR_US = 2000
IGNORE_PERMILLE, RAISE_PERMILLE = 10, 100


def trunc_milli(cores: list[float]) -> int:
    """trunc(1000 x sum), summed in floats in the given order as the peer does."""
    total = 0.0
    for one in cores:
        total += one
    return int(1000 * total)


def suppress_amount(given: Vector) -> Vector:
    node = given["node"]
    capacity = node["capacity_cpu_m"]
    best_effort = {
        pod["uid"]
        for pod in given["pods"]
        if pod["qos_label"] == "BE" or pod["kube_qos"] == "BestEffort"
    }
    online = [p["cpu_cores"] for p in given["pod_usage"] if p["uid"] not in best_effort]
    apps = [a for a in given["host_apps"] if a["usage_cores"] is not None]
    host = [
        a["usage_cores"]
        for a in apps
        if not (a["qos"] == "BE" and a["cgroup_base"] == "kube_besteffort")
    ]
    pods_all = sum(p["cpu_cores"] for p in given["pod_usage"])
    apps_all = sum(a["usage_cores"] for a in apps)
    system = max(given["node_usage_cores"] - pods_all - apps_all, 0.0)
    reserved = max(capacity - node["allocatable_cpu_m"], node["annotation_reserved_cpu_m"] or 0, 0)
    amount = int(
        allow(
            array(capacity), given["threshold_percent"], array(trunc_milli(online)),
            array(trunc_milli(host)), array(trunc_milli([system])), array(reserved),
        )[0]
    )  # fmt: skip
    if given["min_percent"] is not None:
        amount = max(amount, capacity * given["min_percent"] // 100)
    return {"suppress_cpu_m": amount}


def cfs_quota_adjust(given: Vector) -> Vector:
    cores = -(-given["capacity_cpu_m"] // CORE_MILLI)
    quota = adjust(
        array(cores * PERIOD_US), array(int(given["suppress_cpu_m"] * 100)),
        array(given["current_quota"]), array(QUOTA_FLOOR_US), IGNORE_PERMILLE, RAISE_PERMILLE,
    )  # fmt: skip
    return {"quota": int(quota[0])}


ADAPTERS: dict[str, Adapter] = {
    "suppress_amount": suppress_amount,
    "cfs_quota_adjust": cfs_quota_adjust,
}
