"""Family cpu_suppress: CPU of best-effort work."""

from __future__ import annotations

import numpy as np

from agents import suppress_pass
from agents.allowance import allow, floor_of
from agents.cpuset import Pins, Processors, select
from agents.suppress_pass import RECOVERED, UNSET, USING, Bounds, Facts, Manners
from tests.conformance.adapters.common import Adapter, Vector, array

QUOTA_FLOOR_US = 2000
CPU_FLOOR = 2
IGNORE_PERMILLE, RAISE_PERMILLE = 10, 100
STATUS = {None: UNSET, "using": USING, "recovered": RECOVERED}
SAID = {status: name for name, status in STATUS.items()}


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
    amount = allow(
        array(capacity), given["threshold_percent"], array(trunc_milli(online)),
        array(trunc_milli(host)), array(trunc_milli([system])), array(reserved),
    )  # fmt: skip
    if given["min_percent"] is not None:
        amount = np.maximum(amount, floor_of(array(capacity), 0, given["min_percent"]))
    return {"suppress_cpu_m": int(amount[0])}


def processors_of(given: list[Vector]) -> Processors:
    return Processors(*(array(*(p[k] for p in given)) for k in ("cpu", "core", "socket", "node")))


def whole_cores(cpus: list[int]) -> Processors:
    return Processors(array(*cpus), array(*cpus), array(*cpus) * 0, array(*cpus) * 0)


def pins_of(given: Vector) -> Pins:
    def pinned(qos: str) -> list[int]:
        pods = given.get("pinned_pods") or []
        return [cpu for pod in pods if pod["qos_label"] == qos for cpu in pod["cpus"]]

    return Pins(
        array(*pinned("LSE")),
        array(*pinned("LSR")),
        array(*(given.get("reserved_cpus") or [])),
        array(*(given.get("system_qos_cpus") or [])),
        bool(given.get("system_qos_exclusive")),
    )


def manners_of(enabled: bool, by_cpuset: bool, managed: bool) -> Manners:
    return Manners(
        enabled, by_cpuset, QUOTA_FLOOR_US, CPU_FLOOR, IGNORE_PERMILLE, RAISE_PERMILLE, managed
    )


def cpuset_select(given: Vector) -> Vector:
    return {"cpus": select(processors_of(given["processors"]), given["cpu_count"]).tolist()}


def cpuset_adjust(given: Vector) -> Vector:
    bounds = suppress_pass.bound_cpuset(
        Bounds(array(*given["old_cpus"]), -1), given["suppress_cpu_m"],
        processors_of(given["processors"]), pins_of(given), manners_of(True, True, False),
    )  # fmt: skip
    return {"cpus": bounds.cpus.tolist()}


def cfs_quota_adjust(given: Vector) -> Vector:
    quota = suppress_pass.quota_us(
        array(given["capacity_cpu_m"]), array(given["suppress_cpu_m"]),
        array(given["current_quota"]), QUOTA_FLOOR_US, IGNORE_PERMILLE, RAISE_PERMILLE,
    )  # fmt: skip
    return {"quota": int(quota[0])}


def cfs_quota_recover(given: Vector) -> Vector:
    before = Bounds(array(), given["current_quota"], quota_status=STATUS[given["policy_status"]])
    after = suppress_pass.recover_quota(before)
    return {"quota": after.quota_us, "policy_status": SAID[after.quota_status]}


def cpuset_recover(given: Vector) -> Vector:
    before = Bounds(array(*given["old_cpus"]), -1, STATUS[given["policy_status"]])
    after = suppress_pass.recover_cpuset(before, whole_cores(given["node_cpus"]), pins_of(given))
    return {"cpus": after.cpus.tolist(), "policy_status": SAID[after.cpuset_status]}


def reconcile(given: Vector) -> Vector:
    node, used = given["node"], given["node_usage_cores"]
    known = node is not None and used is not None
    after = suppress_pass.reconcile(
        Bounds(array(*given["old_cpus"]), given["current_quota"]),
        Facts(
            -1 if node is None else node["capacity_cpu_m"],
            -1 if used is None else trunc_milli([used]),
            len(given["pods"]),
            suppress_amount(given)["suppress_cpu_m"] if known else 0,
        ),
        processors_of(given["processors"]),
        pins_of(given),
        manners_of(given["enabled"], given["policy"] == "cpuset", given["be_cpu_manager_enabled"]),
    )
    return {
        "cpus": after.cpus.tolist(),
        "quota": after.quota_us,
        "cpuset_policy_status": SAID[after.cpuset_status],
        "cfs_policy_status": SAID[after.quota_status],
    }


ADAPTERS: dict[str, Adapter] = {
    "suppress_amount": suppress_amount,
    "cpuset_select": cpuset_select,
    "cpuset_adjust": cpuset_adjust,
    "cfs_quota_adjust": cfs_quota_adjust,
    "cfs_quota_recover": cfs_quota_recover,
    "cpuset_recover": cpuset_recover,
    "reconcile": reconcile,
}
