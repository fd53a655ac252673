"""Family mid_resource: what mid work may borrow."""

from __future__ import annotations

import numpy as np

from agents.classes import DEFAULT_PRIORITY
from agents.lending import mid
from tests.conformance.adapters import lending
from tests.conformance.adapters.common import Adapter, Vector, array
from tests.conformance.adapters.lending import known, pair, reserved_of, system_of


def calculate(given: Vector) -> Vector:
    strategy, metric = given["strategy"], given["metric"]
    age = None if metric is None else metric["age_seconds"]
    if lending.too_old(age, strategy["degrade_minutes"]):
        return {"degraded": True, "cpu_m": None, "memory": None}
    capacity = pair(given["node"]["capacity"])
    if strategy["mode"] == "static":
        fixed = array(strategy["static_cpu_percent"], strategy["static_memory_percent"])
        amount = mid.fixed(capacity, fixed)
    else:
        asked = [pair(pod["requests"]) for pod in lending.listed(given) if lending.is_prod(pod)]
        allocated = np.add.reduce([pair(None), *asked], axis=0, dtype=np.int64)
        system = system_of(metric, DEFAULT_PRIORITY["mid"])
        idle = mid.unallocated(capacity, system, reserved_of(given["node"]), allocated)
        amount = mid.predicted(
            capacity, known(metric["node_usage"]), pair(metric["prod_reclaimable"]), idle,
            strategy["mid_unallocated_percent"],
        )  # fmt: skip
    limits = array(strategy["mid_cpu_threshold_percent"], strategy["mid_memory_threshold_percent"])
    milli, size = mid.bounded(amount, capacity, limits)[0].tolist()
    return {"degraded": False, "cpu_m": milli, "memory": size}


ADAPTERS: dict[str, Adapter] = {"calculate": calculate, "degrade": lending.degrade}
