"""The policy's sections on placement as arguments of the laws.

Called by the scheduler bridge's extender and descheduler once a policy; a node's own annotations
then replace whole groups of thresholds.
"""

from __future__ import annotations

import numpy as np

from agents.placement.balance import Bounds
from agents.placement.load_filter import ADMIT_STALE, IGNORE_STALE, REJECT_STALE, Thresholds
from agents.table import ABSENT, Ints
from schemas.policy import LoadAware, LowNodeLoad

WHOLE_PERMILLE = 1000


def thresholds_of(rule: LoadAware, count: int) -> Thresholds:
    """Bounds of ``count`` nodes; a prod or aggregated group without any bound is no group."""
    return Thresholds(
        np.tile(np.array([rule.cpu_percent, rule.memory_percent], dtype=np.int64), (count, 1)),
        _group(rule.prod_cpu_percent, rule.prod_memory_percent, count),
        _group(rule.aggregated_cpu_percent, rule.aggregated_memory_percent, count),
    )


def aggregation_of(rule: LoadAware) -> str:
    """The kind of percentile, as reports name it."""
    return f"p{rule.aggregation_percentile}" if rule.aggregation_percentile else "avg"


def stale_rule_of(rule: LoadAware) -> int:
    """What the filter does with stale nodes: those whose score is kept whole are as if fresh."""
    if rule.reject_stale:
        return REJECT_STALE
    return IGNORE_STALE if rule.stale_keep_permille == WHOLE_PERMILLE else ADMIT_STALE


def bounds_of(rule: LowNodeLoad) -> Bounds:
    """Percents by resource; one whose low percent is 0 is not looked at."""
    low, high = _pair(
        (rule.low_cpu_percent, rule.high_cpu_percent),
        (rule.low_memory_percent, rule.high_memory_percent),
    )
    prod_low, prod_high = _pair(
        (rule.prod_low_cpu_percent, rule.prod_high_cpu_percent),
        (rule.prod_low_memory_percent, rule.prod_high_memory_percent),
    )
    return Bounds(low, high, prod_low, prod_high, rule.deviation)


def _group(cpu_percent: int, memory_percent: int, count: int) -> Ints:
    some = cpu_percent > 0 or memory_percent > 0
    row = (cpu_percent, memory_percent) if some else (ABSENT, ABSENT)
    return np.tile(np.array(row, dtype=np.int64), (count, 1))


def _pair(
    cpu: tuple[int, int], memory: tuple[int, int]
) -> tuple[dict[str, float], dict[str, float]]:
    named = {"cpu": cpu, "memory": memory}
    low = {name: float(pair[0]) for name, pair in named.items() if pair[0]}
    return low, {name: float(named[name][1]) for name in low}
