"""How loaded nodes are for a pod that comes now: reported usage and what is not yet in it.

Called by the scheduler bridge's extender when a report or an assignment changes; filter and score
then take the views for each incoming pod. Rules: koordinator `loadaware/pod_assign_cache.go`.
Columns are millicores and bytes; a row of -1 says that nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.table import ABSENT, Array, Bools, Ints


@dataclass(frozen=True, slots=True)
class Reports:
    """The last usage report of each node [n]."""

    known: Bools  # there is a report at all, be it empty
    reported_ms: Ints  # ABSENT: it was never filled
    interval_ms: Ints
    usage: Ints  # [n, 2]


@dataclass(frozen=True, slots=True)
class AssignedPods:
    """Pods that are bound or about to be [p], each with the row of its node."""

    owner: Ints
    estimate: Ints  # [p, 2]
    usage: Ints  # [p, 2], as reported
    prod: Bools  # by the pod itself
    reported_prod: Bools  # by the report
    assigned_ms: Ints
    estimate_until_ms: Ints  # ABSENT: not by time


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Percentiles of node usage over windows: k of them, each of one kind (p95) and length."""

    kinds: Sequence[str]
    windows_ms: Sequence[int]
    usage: Ints  # [k, n, 2]


@dataclass(frozen=True, slots=True)
class Load:
    """What assigned pods add [n, 2]; `prod` is a view of its own, `full` all their estimates."""

    pending: Ints
    full: Ints
    prod: Ints


def stale(reports: Reports, now_ms: int, expire_after_ms: int) -> Bools:
    """Never filled, or ``expire_after_ms`` old or older; 0 or less: not by age."""
    result: Bools = reports.reported_ms < 0
    if expire_after_ms > 0:
        result = result | (now_ms - reports.reported_ms >= expire_after_ms)
    return result


def assigned_load(reports: Reports, pods: AssignedPods) -> Load:
    """What a report does not show yet: of pods it misses, or that came less than a period before.

    Such a pod adds what its estimate exceeds its reported usage by. The prod view is the usage of
    pods that are prod by themselves and by the report, and what prod pods add; a prod pod reported
    as another class adds its full estimate.
    """
    count = len(reports.known)
    shown_ms = (reports.reported_ms - reports.interval_ms).take(pods.owner)
    late = (shown_ms < pods.assigned_ms) | (
        pods.estimate_until_ms > reports.reported_ms.take(pods.owner)
    )
    reported = (pods.usage >= 0).any(axis=1)
    usage = np.maximum(pods.usage, 0)
    extra = np.where((late | ~reported)[:, None], np.maximum(pods.estimate - usage, 0), 0)
    counted = pods.reported_prod & reported
    prod = np.where(counted[:, None], usage + extra, pods.estimate)
    return Load(
        _by_node(pods.owner, extra, count),
        _by_node(pods.owner, pods.estimate, count),
        _by_node(pods.owner[pods.prod], prod[pods.prod], count),
    )


def plain_view(reports: Reports, load: Load) -> Ints:
    """Usage and what is pending [n, 2]; usage that is not known counts as 0."""
    result: Ints = np.maximum(reports.usage, 0) + load.pending
    return result


def aggregated_view(
    reports: Reports, load: Load, aggregates: Aggregates, kind: str, window_ms: int
) -> Ints:
    """As `plain_view`, with the percentile ``kind`` over exactly ``window_ms`` [n, 2].

    A window of 0: the longest that has data, else the plain usage. Where the window asked for is
    missing, the estimates of all assigned pods stand instead of the usage.
    """
    base = np.full_like(load.pending, ABSENT)
    longest_last = sorted(range(len(aggregates.kinds)), key=aggregates.windows_ms.__getitem__)
    for i in longest_last:
        if aggregates.kinds[i] == kind and window_ms in (0, aggregates.windows_ms[i]):
            base = np.where(_has(aggregates.usage[i])[:, None], aggregates.usage[i], base)
    missing = ~_has(base)[:, None]
    if window_ms == 0:
        return np.where(missing, plain_view(reports, load), np.maximum(base, 0) + load.pending)
    return np.where(missing, load.full, np.maximum(base, 0) + load.pending)


def _has(usage: Array) -> Bools:
    """Rows [n, 2] in which anything is known."""
    result: Bools = np.any(usage >= 0, axis=1)
    return result


def _by_node(owner: Ints, amounts: Array, count: int) -> Ints:
    """Exact sums of ``amounts`` [p, 2] by node [n, 2], whatever the order of pods."""
    result = np.zeros((count, 2), dtype=np.int64)
    np.add.at(result, owner, amounts)
    return result
