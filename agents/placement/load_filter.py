"""Which nodes are too loaded for one more pod, with the reason for each.

Called by the scheduler bridge's extender with all candidate nodes at once.
Rules: koordinator `loadaware/load_aware.go` (Filter). Columns are cpu and memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.placement.load import Reports
from agents.table import Array, Bools, Ints

REASONS = (
    "fits", "daemonset", "no_thresholds", "no_report", "stale_admitted",
    "stale", "cpu_over", "memory_over",
)  # fmt: skip
FITS, DAEMONSET, NO_THRESHOLDS, NO_REPORT, STALE_ADMITTED, STALE, CPU_OVER, MEMORY_OVER = range(
    len(REASONS)
)
"""From STALE on the node is refused."""
USAGE, PROD, AGGREGATED = range(3)
"""Which group of thresholds a node is judged by; each has its own view of the load."""
IGNORE_STALE, ADMIT_STALE, REJECT_STALE = range(3)
"""What is done with nodes whose report is too old: judged as if fresh, let in, or refused."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Percent of allocatable [n, 2] by group; 0: no bound, -1: not set (a whole row: no group)."""

    usage: Ints
    prod: Ints
    aggregated: Ints

    def overlaid(self, said: Thresholds) -> Thresholds:
        """What nodes' own annotations said instead, each group that they set as a whole."""
        return Thresholds(
            _whole_rows(self.usage, said.usage),
            _whole_rows(self.prod, said.prod),
            _whole_rows(self.aggregated, said.aggregated),
        )


@dataclass(frozen=True, slots=True)
class Filtered:
    """The answer [n] and its terms [n, 2]."""

    reason: Ints  # of REASONS
    used: Ints  # with the pod
    percent: Ints
    threshold: Ints

    @property
    def admitted(self) -> Bools:
        result: Bools = self.reason < STALE
        return result


def choose(thresholds: Thresholds, prod_pod: bool) -> tuple[Ints, Ints]:
    """Bounds in use [n, 2] and their group [n]: prod for prod pods, else aggregated, else usage."""
    aggregated = np.any(thresholds.aggregated >= 0, axis=1)
    group = np.where(aggregated, AGGREGATED, USAGE)
    bounds = np.where(aggregated[:, None], thresholds.aggregated, thresholds.usage)
    if prod_pod:
        prod = np.any(thresholds.prod >= 0, axis=1)
        group = np.where(prod, PROD, group)
        bounds = np.where(prod[:, None], thresholds.prod, bounds)
    return np.maximum(bounds, 0), group


def view_of(group: Ints, plain: Ints, prod: Ints, aggregated: Ints) -> Ints:
    """The view [n, 2] that each node's group of thresholds looks at."""
    view = np.where((group == PROD)[:, None], prod, plain)
    result: Ints = np.where((group == AGGREGATED)[:, None], aggregated, view)
    return result


def _whole_rows(base: Ints, said: Ints) -> Ints:
    return np.where(np.any(said >= 0, axis=1)[:, None], said, base)


def percent_used(used: Array, allocatable: Array) -> Ints:
    """Whole percent, halves up, by a float quotient as the peer's; 0 of nothing."""
    total = np.where(allocatable > 0, allocatable, 1).astype(np.float64)
    percent = used.astype(np.float64) / total * 100
    whole = percent.astype(np.int64)
    # The fraction is exact, where adding a half first might round up what lies just below it.
    result: Ints = np.where(allocatable > 0, whole + (percent - whole >= 1 / 2), 0)
    return result


def judge(
    reports: Reports, view: Ints, estimate: Array, allocatable: Ints, bounds: Ints,
    daemonset: bool, stale: Bools, stale_rule: int,
) -> Filtered:  # fmt: skip
    """Whether one pod of ``estimate`` [2] may go to each node: view + estimate within the bound.

    Equal passes, in whole percent. The first rule in the order of the code's lines decides; cpu is
    named before memory. ``stale_rule`` is one of IGNORE_STALE, ADMIT_STALE, REJECT_STALE.
    """
    used = view + estimate
    percent = percent_used(used, allocatable)
    over = (percent > bounds) & (bounds > 0)
    reason = np.where(over[:, 1], MEMORY_OVER, FITS)
    reason = np.where(over[:, 0], CPU_OVER, reason)
    reason = np.where((reports.usage < 0).all(axis=1), NO_REPORT, reason)
    if stale_rule != IGNORE_STALE:
        reason = np.where(stale, STALE if stale_rule == REJECT_STALE else STALE_ADMITTED, reason)
    reason = np.where(reports.known, reason, NO_REPORT)
    reason = np.where((bounds == 0).all(axis=1), NO_THRESHOLDS, reason)
    if daemonset:
        reason = np.full_like(reason, DAEMONSET)
    return Filtered(reason, used, percent, bounds)
