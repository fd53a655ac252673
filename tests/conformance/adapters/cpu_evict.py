"""Family cpu_evict: who goes when CPU runs short."""

from __future__ import annotations

from functools import partial

import numpy as np

from agents.eviction import order, plan, release
from tests.conformance.adapters import eviction
from tests.conformance.adapters.common import Adapter, Vector, array

USAGE_PERCENT = 90


def release_by_usage(given: Vector) -> Vector:
    marks = plan.usage_marks(plan.Rule(given["threshold_percent"], given["lower_percent"]))
    if marks is None:
        return {"release_m": 0}
    used = array(int(given["used_m"]))
    return {"release_m": int(release.by_usage(array(given["capacity_m"]), used, *marks)[0])}


def satisfaction(
    said: Vector | None, batch: int | None, by_allocatable: bool
) -> release.Satisfaction:
    """Arrays of one; what was not measured is nothing, which nobody is starved by."""
    figures = said or {"used_m": 0.0, "request_m": 0.0, "real_limit_m": 0.0}
    used, request, limit = (
        np.array([figures[name]], dtype=np.float64)
        for name in ("used_m", "request_m", "real_limit_m")
    )
    lent = np.array([-1.0 if batch is None else batch], dtype=np.float64)
    limit = release.limit_of(limit, lent, by_allocatable=by_allocatable)
    return release.Satisfaction(used, request, limit)


def release_by_satisfaction(given: Vector) -> Vector:
    marks = plan.satisfaction_marks(eviction.rule(given["config"]) or plan.Rule())
    if marks is None or given["avg"] is None or given["current"] is None:
        return {"release_m": 0}
    config, interval = given["config"], given["collect_interval_seconds"]
    percent = config["be_usage_threshold_percent"]
    lent = (given["batch_allocatable_m"], config["policy"] == "allocatable")
    count = array(given["avg"]["count"])
    milli = release.by_satisfaction(
        satisfaction(given["avg"], *lent),
        satisfaction(given["current"], *lent),
        release.covers(count, interval, max(config["window_seconds"] or 0, interval)),
        *marks,
        USAGE_PERCENT if percent is None else percent,
    )
    return {"release_m": int(milli[0])}


def be_cpu_order(given: Vector) -> Vector:
    pods = [eviction.candidate(pod, "batch_request_m") for pod in given["pods"]]
    return {"order": [pod.uid for pod in order.by_share(pods)]}


def cpu_evict(given: Vector) -> Vector:
    starved = 0
    if given.get("avg") is not None:
        defaults = {"current": None, "batch_allocatable_m": None, "collect_interval_seconds": 1}
        starved = release_by_satisfaction(defaults | given)["release_m"]
    return eviction.sweep("cpu", "request_m", given, starved)


ADAPTERS: dict[str, Adapter] = {
    "config_check": partial(eviction.config_check, "cpu"),
    "release_by_usage": release_by_usage,
    "release_by_allocatable": partial(eviction.by_allocatable, "cpu", "request_m"),
    "release_by_satisfaction": release_by_satisfaction,
    "victim_order": partial(eviction.victim_order, "request_m"),
    "be_victim_order": be_cpu_order,
    "evict": cpu_evict,
    "multi_task_release": eviction.multi_task_release,
    "evict_policy_allowed": eviction.policy_allowed,
}
