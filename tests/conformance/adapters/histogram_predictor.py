"""Family histogram_predictor: decaying histograms and the peak predictor."""

from __future__ import annotations

from typing import Any

import numpy as np

from agents.prediction import buckets as table
from agents.prediction import checkpoint, histogram, peak
from agents.prediction.histogram import Histograms, Kind
from agents.table import ABSENT
from tests.conformance.adapters.common import Adapter, Vector, amounts, array

ONE = array(0)
"""The only row."""


def buckets_of(options: Vector) -> table.Buckets:
    if options["scheme"] == "linear":
        return table.linear(options["max_value"], options["bucket_size"])
    return table.exponential(options["max_value"], options["first_bucket_size"], options["ratio"])


def kind_of(given: Vector) -> Kind:
    half_life_ms = round((given.get("half_life_seconds") or 0) * 1000)
    return Kind(buckets_of(given["options"]), half_life_ms, given["options"]["epsilon"])


def filled(kind: Kind, samples: list[Vector]) -> tuple[Histograms, list[bool]]:
    """One histogram with these samples, and whether it was empty after each."""
    one = histogram.empty(kind, 1, np.float64)
    after = []
    for sample in samples:
        change = histogram.subtract if sample.get("op") == "sub" else histogram.add
        found = table.find(kind.buckets, np.array([sample["value"]]))
        t_ms = round((sample.get("t") or 0) * 1000)
        change(kind, one, ONE, found, t_ms, sample["weight"])
        after.append(is_empty(kind, one))
    return one, after


def asked(kind: Kind, one: Histograms, fractions: list[float]) -> list[float]:
    answers: list[float] = histogram.percentiles(kind, one, ONE, tuple(fractions))[0].tolist()
    return answers


def is_empty(kind: Kind, one: Histograms) -> bool:
    """Nothing but an empty histogram answers 0: every bucket ends above it."""
    return asked(kind, one, [0.0]) == [0.0]


def buckets(given: Vector) -> Vector:
    scheme = buckets_of(given["options"])
    return {
        "num_buckets": scheme.count,
        "starts": [float(scheme.starts[i]) for i in given["start_of"]],
        "found": table.find(scheme, np.array(given["find"], dtype=np.float64)).tolist(),
    }


def percentiles(given: Vector) -> Vector:
    kind = kind_of(given)
    one, after = filled(kind, given["samples"])
    return {
        "percentiles": asked(kind, one, given["percentiles"]),
        "empty": is_empty(kind, one),
        "empty_after_each": after,
    }


def merge(given: Vector) -> Vector:
    kind = kind_of(given)
    (left, _), (right, _) = filled(kind, given["left"]), filled(kind, given["right"])
    histogram.merge(left, right)
    return {"percentiles": asked(kind, left, given["percentiles"])}


def checkpoint_save(given: Vector) -> Vector:
    kind = kind_of(given)
    one, _ = filled(kind, given["samples"])
    weights = checkpoint.save(one.cells, kind.epsilon)[0]
    return {
        "total_weight": float(one.total[0]),
        "bucket_weights": {str(i): int(weights[i]) for i in np.flatnonzero(weights)},
    }


def checkpoint_load(given: Vector) -> Vector:
    stored = given["checkpoint"]
    if stored is None:
        return {"ok": False}
    places = array(*(int(name) for name in stored["bucket_weights"]))
    weights = array(*stored["bucket_weights"].values())
    total = stored["total_weight"]
    cells = checkpoint.load(places, weights, total, buckets_of(given["options"]).count)
    if cells is None:
        return {"ok": False}
    kept = [{"bucket": int(i), "weight": float(cells[i])} for i in np.flatnonzero(cells)]
    return {"ok": True, "total_weight": float(total), "weights": kept}


def model(prediction: Vector | None) -> tuple[int, int]:
    if prediction is None:
        return ABSENT, ABSENT
    return prediction["p95_cpu_m"], prediction["p98_memory"]


def shown(answer: peak.Answer, prefix: str) -> dict[str, Any]:
    return {
        f"{prefix}{name}": {"cpu_m": int(values[0, 0]), "memory": int(values[0, 1])}
        for name, values in (("reclaimable", answer.reclaimable), ("peak", answer.peak))
    }


def reclaimable(given: Vector) -> Vector:
    counted = [pod for pod in given["pods"] if pod["priority_class"] in ("prod", "none", "")]
    pods = peak.Pods(
        owner=np.zeros(len(counted), dtype=np.int64),
        request=array(*(x for pod in counted for x in amounts(pod["request"]))).reshape(-1, 2),
        percentile=array(*(x for p in counted for x in model(p["prediction"]))).reshape(-1, 2),
        age_s=np.array([pod["age_seconds"] for pod in counted], dtype=np.float64),
        ending=np.array([p["deleting"] or p["terminated"] for p in counted], dtype=np.bool_),
    )
    allocatable = array(*amounts(given["node_allocatable"])).reshape(1, 2)
    how = given["safety_margin_percent"], given["cold_start_seconds"]
    pod = peak.by_pod(allocatable, pods, *how)
    result = shown(pod, "pod_")
    classes = [given[name] for name in ("system", "prod", "none") if given[name] is not None]
    if classes:
        models = np.add.reduce(array(*(x for c in classes for x in model(c))).reshape(-1, 2))
        whole = peak.by_class(allocatable, pods, models.reshape(1, 2), *how)
        result |= shown(whole, "priority_") | shown(peak.lesser(pod, whole), "")
    return result


ADAPTERS: dict[str, Adapter] = {
    "buckets": buckets,
    "percentiles": percentiles,
    "merge": merge,
    "checkpoint_save": checkpoint_save,
    "checkpoint_load": checkpoint_load,
    "reclaimable": reclaimable,
}
