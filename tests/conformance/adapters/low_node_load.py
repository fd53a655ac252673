"""Family low_node_load: which nodes are relieved and which take."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from agents.placement import anomaly, balance, utilization
from agents.table import ABSENT, Ints
from tests.conformance.adapters.common import Adapter, Vector

ROUND_MS = 1000


def columns(names: Iterable[str], given: Vector | None, absent: int = 0) -> Ints:
    found = {name: value for name, value in (given or {}).items() if value is not None}
    return np.array([found.get(name, absent) for name in names], dtype=np.int64)


def table(names: Iterable[str], given: list[Vector], key: str, absent: int = 0) -> Ints:
    names = list(names)
    rows = [columns(names, node[key], absent) for node in given]
    return np.array(rows, dtype=np.int64).reshape(-1, len(names))


def classify_nodes(given: Vector) -> Vector:
    nodes, said = given["nodes"], given["thresholds"]
    bounds = balance.Bounds(
        said["low"], said["high"], said["prod_low"], said["prod_high"], given["use_deviation"]
    )
    names = bounds.names
    answer = balance.classify(
        bounds,
        table(names, nodes, "usage", ABSENT),
        table(names, nodes, "prod_usage", ABSENT),
        table(names, nodes, "allocatable"),
        np.array([node["unschedulable"] for node in nodes], dtype=bool),
    )
    limits = {
        node["name"]: {
            "low": dict(zip(names, answer.low[i].tolist(), strict=True)),
            "high": dict(zip(names, answer.high[i].tolist(), strict=True)),
        }
        for i, node in enumerate(nodes)
    }
    kinds = answer.kind.tolist()
    classes = {node["name"]: balance.CLASSES[kinds[i]] for i, node in enumerate(nodes)}
    return {"classes": classes, "limits": limits}


def overutilized(given: Vector) -> Vector:
    prod = given["prod"]
    said = (given["prod_thresholds"] if prod else given["thresholds"]) or {}
    names = sorted(said)
    over = utilization.overutilized(
        names,
        columns(names, given["prod_usage"] if prod else given["usage"], ABSENT),
        columns(names, given["allocatable"]),
        np.array([said[name] for name in names], dtype=np.float64),
    )
    return {
        "over": [
            {
                "resource": one.resource,
                "usage_percent": one.usage_percent,
                "threshold_percent": one.threshold_percent,
            }
            for one in over
        ]
    }


def usage_percent(given: Vector) -> Vector:
    names = sorted(given["usage"])
    percent = utilization.whole_percent(
        columns(names, given["usage"]), columns(names, given["allocatable"])
    ).tolist()
    known = {name: value for name, value in zip(names, percent, strict=True) if value != ABSENT}
    return {"percent_floor": known}


def anomaly_filter(given: Vector) -> Vector:
    names = sorted({name for hot in given["rounds"] for name in hot})
    nothing = np.zeros(len(names), dtype=np.int64)
    marks, hot = anomaly.Marks(nothing, nothing), np.zeros(len(names), dtype=bool)
    for number, sources in enumerate(given["rounds"]):
        hot = np.isin(names, sources) if names else hot
        marks = anomaly.mark(
            marks, number * ROUND_MS, hot, np.zeros(len(names), dtype=bool),
            ROUND_MS * (len(given["rounds"]) + 1),
        )  # fmt: skip
    chosen = set(np.array(names)[anomaly.abnormal(marks, hot, given["consecutive_abnormal"])])
    last = given["rounds"][-1] if given["rounds"] else []
    return {"abnormal": [name for name in last if name in chosen]}


ADAPTERS: dict[str, Adapter] = {
    "classify_nodes": classify_nodes,
    "overutilized": overutilized,
    "usage_percent": usage_percent,
    "anomaly_filter": anomaly_filter,
}
