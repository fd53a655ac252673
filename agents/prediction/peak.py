"""What high-priority pods leave of their requests: the peer's peak predictor, over many nodes.

`agents.predict` calls it with the percentiles that `agents.prediction.fleet` answers; mid capacity
draws on the answer.
The lesser of two models counts: one of single pods, one of whole priority classes. Amounts are
[n, 2] millicores and bytes. Formula: koordinator `pkg/koordlet/prediction/peak_predictor.go`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.table import ABSENT, Array, Bools, Ints


@dataclass(frozen=True, slots=True)
class Pods:
    """The prod and unclassed pods [m] of n nodes; others have no part in it."""

    owner: Ints  # index of the node
    request: Ints  # [m, 2]
    percentile: Ints  # [m, 2] p95 of cpu, p98 of memory; ABSENT without a model
    age_s: Array  # since creation
    ending: Bools  # being deleted, or terminated


@dataclass(frozen=True, slots=True)
class Answer:
    """[n, 2]: what may be lent for longer, and the peak that stays with its owners."""

    reclaimable: Ints
    peak: Ints


def with_margin(amounts: Ints, margin_percent: int) -> Ints:
    """Amounts and the safety margin, in the peer's order of floating-point operations."""
    return (amounts.astype(np.float64) * (float(100 + margin_percent) / 100)).astype(np.int64)


def by_pod(allocatable: Ints, pods: Pods, margin_percent: int, cold_start_s: float) -> Answer:
    """Pod by pod: the request less the peak, never offset by another pod above its request.

    A pod that is cold or has no model keeps its request and gives nothing; coldness is asked before
    ending, so a cold pod counts until it is gone.
    """
    cold, unknown = _doubts(pods, cold_start_s)
    keeps = cold | (unknown & ~pods.ending)
    known = ~cold & ~unknown & ~pods.ending
    peaks = np.where(known[:, None], with_margin(pods.percentile, margin_percent), 0)
    gaps = np.where(known[:, None], np.maximum(pods.request - peaks, 0), 0)
    kept = np.where(keeps[:, None], pods.request, 0)
    nodes = len(allocatable)
    held, left = _sums(pods.owner, peaks, nodes), _sums(pods.owner, gaps, nodes)
    reclaimable = np.minimum(np.maximum(allocatable - held, 0), left)
    return Answer(reclaimable, held + _sums(pods.owner, kept, nodes))


def by_class(
    allocatable: Ints, pods: Pods, models: Ints, margin_percent: int, cold_start_s: float
) -> Answer:
    """Class by class: ``models`` [n, 2] is the sum of the percentiles of system, prod, unclassed.

    Requests count whether a pod is cold or not, unless it is ending or has lost its model. ABSENT
    where a class has none yet: then nothing is given, and nothing said of the peak.
    """
    cold, unknown = _doubts(pods, cold_start_s)
    out = pods.ending | (unknown & ~cold)
    live = np.where(out[:, None], 0, pods.request)
    requests = _sums(pods.owner, live, len(allocatable))
    peak = with_margin(models, margin_percent)
    reclaimable = np.minimum(np.maximum(allocatable - peak, 0), np.maximum(requests - peak, 0))
    known = (models >= 0).all(axis=1, keepdims=True)
    return Answer(np.where(known, reclaimable, 0), np.where(known, peak, 0))


def lesser(one: Answer, other: Answer) -> Answer:
    """What both models allow: the smaller reclaimable, the larger peak."""
    return Answer(np.minimum(one.reclaimable, other.reclaimable), np.maximum(one.peak, other.peak))


def _doubts(pods: Pods, cold_start_s: float) -> tuple[Bools, Bools]:
    """Which pods [m] are too young to be believed, and which have no model."""
    return pods.age_s <= cold_start_s, (pods.percentile == ABSENT).any(axis=1)


def _sums(owner: Ints, amounts: Ints, nodes: int) -> Ints:
    """[nodes, 2] sums; exact, because the bytes of a node stay below 2^53."""
    columns = [np.bincount(owner, weights=amounts[:, i], minlength=nodes) for i in range(2)]
    return np.stack(columns, axis=1).astype(np.int64)
