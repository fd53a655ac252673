"""Family cpu_burst: CPU burst of online pods and its limiter."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.isolation import burst_limiter, cpu_burst
from agents.isolation.cpu_burst import BurstConfig
from agents.table import Ints
from tests.conformance.adapters.common import Adapter, Vector, array

STATES = {
    "unknown": cpu_burst.UNKNOWN,
    "idle": cpu_burst.IDLE,
    "cooling": cpu_burst.COOLING,
    "overload": cpu_burst.OVERLOAD,
}
COOLING_PERCENT, UP_PERCENT, DOWN_PERCENT, SAVING_BELOW_PERCENT = 90, 120, 80, 60
MS = 1000
NAMES = {
    "policy": "policy",
    "cpu_burst_percent": "cpu_burst_percent",
    "cfs_quota_burst_percent": "quota_burst_percent",
    "cfs_quota_burst_period_seconds": "quota_burst_period_s",
}


def milli(cores: float | None) -> int:
    return -1 if cores is None else round(cores * 1000)


def known(percent: int | None) -> int:
    return -1 if percent is None else percent


def config_of(given: Vector) -> BurstConfig:
    return BurstConfig(**{ours: given[theirs] for theirs, ours in NAMES.items()})


def node_burst_state(given: Vector) -> Vector:
    def total(key: str, classes: tuple[str, ...]) -> int:
        return sum(pod[key] or 0 for pod in given["pods"] if pod["qos_label"] in classes)

    (state,) = cpu_burst.node_state(
        array(given["node_cpus"] or 0),
        array(total("request_cpu_m", ("LSE", "LSR"))),
        array(milli(given["node_usage_cores"])),
        array(
            sum(
                milli(pod["usage_cores"] or 0)
                for pod in given["pods"]
                if pod["qos_label"] in ("LSE", "LSR", "BE")
            )
        ),
        given["share_pool_threshold_percent"],
        COOLING_PERCENT,
    ).tolist()
    return {"state": next(name for name, code in STATES.items() if code == state)}


def limits_of(given: Vector) -> Ints:
    return array(*(one["limit_cpu_m"] or -1 for one in given["containers"]))


def every(given: Vector, value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    return np.full(len(given["containers"]), value)


def cpu_burst_value(given: Vector) -> Vector:
    config = config_of(given["config"])
    on = every(given, config.policy in cpu_burst.KERNEL_BURST)
    percent = every(given, known(config.cpu_burst_percent))
    values = cpu_burst.burst_us(limits_of(given), percent, on).tolist()
    names = [one["name"] for one in given["containers"]]
    return {"containers": dict(zip(names, values, strict=True)), "pod": sum(values)}


def merge_config(given: Vector) -> Vector:
    pod = given["pod"]
    merged = cpu_burst.merge(config_of(given["node"]), None if pod is None else config_of(pod))
    return {theirs: getattr(merged, ours) for theirs, ours in NAMES.items()}


def cfs_quota_burst(given: Vector) -> Vector:
    config, containers = config_of(given["config"]), given["containers"]
    percent = every(given, known(config.quota_burst_percent))
    period = config.quota_burst_period_s
    ratios = [one["throttled_ratio"] for one in containers]
    what = cpu_burst.operation(
        every(given, STATES[given["node_state"]]),
        every(given, config.policy in cpu_burst.QUOTA_BURST),
        percent,
        every(given, -1 if period is None else period),
        np.array([one["limiter_allows"] for one in containers], dtype=np.bool_),
        array(*(-1 if ratio is None else int(ratio > 0) for ratio in ratios)),
    )
    now = array(*(one["current_quota"] for one in containers))
    after = cpu_burst.quota_us(limits_of(given), now, percent, what, UP_PERCENT, DOWN_PERCENT)
    pod = cpu_burst.pod_quota_us(array(given["pod_quota"]), every(given, 0), after - now)
    names = [one["name"] for one in containers]
    return {
        "pod_quota": int(pod[0]),
        "containers": dict(zip(names, after.tolist(), strict=True)),
    }


def limiter(given: Vector) -> Vector:
    size = burst_limiter.capacity(
        array(given["period_seconds"] * MS), array(given["max_scale_percent"])
    )
    tokens = burst_limiter.spend(
        array(given["tokens"] * MS), size, array(given["usage_percent"]),
        array(given["elapsed_seconds"] * MS), SAVING_BELOW_PERCENT,
    )  # fmt: skip
    return {"allow": bool(burst_limiter.allows(tokens)[0]), "tokens": int(tokens[0]) // MS}


ADAPTERS: dict[str, Adapter] = {
    "node_burst_state": node_burst_state,
    "cpu_burst_value": cpu_burst_value,
    "merge_config": merge_config,
    "cfs_quota_burst": cfs_quota_burst,
    "burst_limiter": limiter,
}
