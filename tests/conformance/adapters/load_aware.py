"""Family load_aware: load-aware filter, score and estimates."""

from __future__ import annotations

import numpy as np

from agents.placement import estimate, load, load_filter, load_score
from agents.table import ABSENT, Ints
from schemas.policy import LoadAware
from tests.conformance.adapters.common import Adapter, Amounts, Vector, amounts

NOW_MS = 1 << 40
RULE = LoadAware()
DEFAULT = (RULE.default_cpu_milli, RULE.default_memory_bytes)
FACTORS = (RULE.cpu_factor_percent, RULE.memory_factor_percent)
NO_ROW: Amounts = (ABSENT, ABSENT)


def row(given: Amounts) -> Ints:
    return np.array([given], dtype=np.int64)


def pair(given: Vector | None, absent: int) -> Amounts:
    """Percents by `cpu` and `memory`."""
    found = present(given)
    return found.get("cpu", absent), found.get("memory", absent)


def present(given: Vector | None) -> Vector:
    """What is said; null is absent."""
    return {name: value for name, value in (given or {}).items() if value is not None}


def age_ms(seconds: float) -> int:
    return NOW_MS - int(seconds * 1000)


def estimate_of(pod: Vector, factors: Vector, custom: Vector | None = None) -> Ints:
    """One pod's estimate [1, 2]."""
    kind = pod["priority_class"]
    return estimate.estimate(
        row(estimate.quantities(kind, present(pod["requests"]))),
        row(estimate.quantities(kind, present(pod["limits"]))),
        row(estimate.fallback(kind, DEFAULT)),
        estimate.overlay(
            estimate.overlay(row(FACTORS), row(pair(factors, ABSENT))), row(pair(custom, ABSENT))
        ),
    )


def estimate_pod(given: Vector) -> Vector:
    custom = given["custom_factors"] if given["allow_customize"] else None
    milli, size = estimate_of(given["pod"], given["scaling_factors"], custom)[0].tolist()
    return {"cpu_m": milli, "memory": size}


def estimate_node(given: Vector) -> Vector:
    base, raw = present(given["allocatable"]), present(given["raw_allocatable"])
    names = sorted(set(base) | set(raw))
    merged = estimate.overlay(
        np.array([base.get(name, 0) for name in names], dtype=np.int64),
        np.array([raw.get(name, ABSENT) for name in names], dtype=np.int64),
    )
    return dict(zip(names, merged.tolist(), strict=True))


def reports_of(metric: Vector | None) -> load.Reports:
    """One node's report."""
    said = metric or {"age_seconds": None, "report_interval_seconds": 60, "node_usage": None}
    age, usage = said["age_seconds"], said["node_usage"]
    return load.Reports(
        known=np.array([metric is not None]),
        reported_ms=np.array([ABSENT if age is None else age_ms(age)]),
        interval_ms=np.array([int((said["report_interval_seconds"] or 60) * 1000)]),
        usage=row(NO_ROW if usage is None else amounts(usage)),
    )


def assigned_of(given: Vector) -> load.AssignedPods:
    pods = given["assigned_pods"] or []
    shown = {pod["key"]: pod for pod in (given["metric"] or {}).get("pods") or []}
    reported = [shown.get(pod["key"]) for pod in pods]
    usage = [amounts(pod["usage"]) if pod and pod["usage"] else NO_ROW for pod in reported]
    estimates = [estimate_of(pod, given["scaling_factors"])[0].tolist() for pod in pods]
    return load.AssignedPods(
        owner=np.zeros(len(pods), dtype=np.int64),
        estimate=np.array(estimates, dtype=np.int64).reshape(-1, 2),
        usage=np.array(usage, dtype=np.int64).reshape(-1, 2),
        prod=np.array([pod["priority_class"] == "prod" for pod in pods], dtype=bool),
        reported_prod=np.array(
            [pod is not None and pod["priority_class"] == "prod" for pod in reported],
            dtype=np.bool_,
        ),
        assigned_ms=np.array([age_ms(pod["assigned_age_seconds"]) for pod in pods], dtype=np.int64),
        estimate_until_ms=np.full(len(pods), ABSENT),
    )


def aggregated_of(
    given: Vector, reports: load.Reports, found: load.Load, wanted: Vector | None
) -> Ints:
    """The view by percentile, or the plain one when none is asked for."""
    if not wanted or not wanted.get("type"):
        return load.plain_view(reports, found)
    windows = (given["metric"] or {}).get("aggregated") or []
    usage = [[amounts(one["usage"]) if one["usage"] else NO_ROW] for one in windows]
    aggregates = load.Aggregates(
        [one["type"] for one in windows],
        [int(one["duration_seconds"] * 1000) for one in windows],
        np.array(usage, dtype=np.int64).reshape(-1, 1, 2),
    )
    window_ms = int((wanted.get("duration_seconds") or 0) * 1000)
    return load.aggregated_view(reports, found, aggregates, wanted["type"], window_ms)


def filter_node(given: Vector) -> Vector:
    reports, pod = reports_of(given["metric"]), given["pod"]
    found = load.assigned_load(reports, assigned_of(given))
    groups = given["thresholds"]
    percentile = groups["aggregated"] if (groups["aggregated"] or {}).get("type") else None
    bounds, group = load_filter.choose(
        load_filter.Thresholds(
            row(pair(groups["usage"], ABSENT)),
            row(pair(groups["prod"], ABSENT)),
            row(pair((percentile or {}).get("thresholds"), ABSENT)),
        ),
        pod["priority_class"] == "prod",
    )
    view = load_filter.view_of(
        group, load.plain_view(reports, found), found.prod,
        aggregated_of(given, reports, found, percentile),
    )  # fmt: skip
    rule = load_filter.IGNORE_STALE
    if given["filter_expired"]:
        refuse = given["schedule_when_expired"] is False
        rule = load_filter.REJECT_STALE if refuse else load_filter.ADMIT_STALE
    answer = load_filter.judge(
        reports, view, estimate_of(pod, given["scaling_factors"])[0],
        row(amounts(given["allocatable"])), bounds, pod["daemonset"],
        load.stale(reports, NOW_MS, int((given["expiration_seconds"] or 0) * 1000)), rule,
    )  # fmt: skip
    if answer.admitted[0]:
        return {"result": "pass", "resource": None}
    resource = {
        load_filter.STALE: "expired", load_filter.CPU_OVER: "cpu", load_filter.MEMORY_OVER: "memory"
    }[int(answer.reason[0])]  # fmt: skip
    return {"result": "reject", "resource": resource}


def score_node(given: Vector) -> Vector:
    reports, pod = reports_of(given["metric"]), given["pod"]
    found = load.assigned_load(reports, assigned_of(given))
    prod = given["score_prod_usage"] and pod["priority_class"] == "prod"
    answer = load_score.score(
        reports,
        found.prod if prod else aggregated_of(given, reports, found, given["aggregated"]),
        estimate_of(pod, given["scaling_factors"])[0],
        row(amounts(given["allocatable"])),
        pair(given["weights"], 0),
        given["dominant_weight"] or 0,
        stale=load.stale(reports, NOW_MS, int((given["expiration_seconds"] or 0) * 1000)),
        ill=np.zeros(1, dtype=bool),
        stale_keep_permille=0,
        ill_keep_permille=1000,
    )
    return {"score": int(answer.score[0])}


ADAPTERS: dict[str, Adapter] = {
    "estimate_pod": estimate_pod,
    "estimate_node": estimate_node,
    "filter": filter_node,
    "score": score_node,
}
