"""How much has to be released on each node: by usage, by allocatable, by satisfaction.

Arrays [n] over nodes, or over kinds of one resource. Formulas: koordinator
`qosmanager/plugins/memoryevict/memory_evict.go` and `cpuevict/cpu_evict.go`. Where a share is a
float, the operations stand in the peer's order, because the last bit decides what is truncated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.table import Array, Bools, Ints

PERCENT = 100
CORE_MILLI = 1000
"""A limit below one core counts as used up, whatever runs under it."""
COVERED_PART = 3
"""A window is believed when a third of it was seen."""
MARGIN_PART, LOWER_PART = 4, 2
"""A margin that was meant for a large limit leaves three quarters, and a half, of a small one."""
LARGEST = float(1 << 62)
"""A float amount beyond this is cut to it before it becomes an integer."""


def by_usage(
    capacity: Array, used: Array, threshold_percent: Array | int, lower_percent: Array | int
) -> Ints:
    """Amount to free: 0 below the threshold; whole percents, truncated. Capacity above 0.

    Exact below 2^56.
    """
    percent = used * PERCENT // capacity
    release = capacity * np.maximum(percent - lower_percent, 0) // PERCENT
    result: Ints = np.where(percent >= threshold_percent, release, 0)
    return result


def mark_below(limit: Array | int, margin: Array | int) -> Ints:
    """From which use on a memory limit is nearly reached; small ones keep three quarters."""
    result: Ints = limit - np.minimum(margin, limit // MARGIN_PART)
    return result


def by_limit(limit: Array, used: Array, margin: Array | int, lower: Array | int) -> Ints:
    """Amount to free under a limit: 0 below its mark, else down to the lower one, at least half."""
    floor = limit - np.minimum(lower, limit // LOWER_PART)
    result: Ints = np.where(used >= mark_below(limit, margin), used - floor, 0)
    return result


def by_allocatable(
    requested: Array, allocatable: Array, threshold_percent: int, lower_percent: int, *,
    by_ratio: bool,
) -> Ints:  # fmt: skip
    """Requests to take back, where they exceed a share of what is allocatable.

    With nothing allocatable, all of it. ``by_ratio``: the peer's order of operations for memory;
    else the one for CPU.
    """
    asked, there = requested.astype(np.float64), allocatable.astype(np.float64)
    safe = np.where(there > 0, there, 1.0)
    ratio = asked / safe
    lower = float(lower_percent) / PERCENT
    excess = (ratio - lower) * safe if by_ratio else asked - lower * safe
    over = np.where(ratio > float(threshold_percent) / PERCENT, _whole(excess), 0)
    result: Ints = np.where(allocatable > 0, np.maximum(over, 0), requested)
    return result


@dataclass(frozen=True, slots=True)
class Satisfaction:
    """Best-effort CPU on each node: used, requested and its limit, in millicores [n] of float64."""

    used: Array
    request: Array
    limit: Array


def by_satisfaction(
    mean: Satisfaction, latest: Satisfaction, enough: Bools, lower_percent: Array | int,
    upper_percent: Array | int, usage_percent: Array | int,
) -> Ints:  # fmt: skip
    """Requests to take back so that what is left is satisfied; both views must agree that it hurts.

    ``mean`` is over the window, of which ``enough`` was seen; the smaller of both answers holds.
    """
    percents = (lower_percent, upper_percent, usage_percent)
    over_window = np.where(enough, _unsatisfied(mean, *percents), 0)
    now = _unsatisfied(latest, *percents)
    same = (latest.request == mean.request) & (latest.limit == mean.limit)
    hurts = _is_used_up(latest, usage_percent)
    both = np.where(same & hurts, over_window, np.minimum(over_window, now))
    result: Ints = np.where(over_window > 0, both, 0)
    return result


def covers(count: Array, interval: int, window: Array | int) -> Bools:
    """Whether ``count`` points, ``interval`` apart, tell enough of a window; all in one unit."""
    result: Bools = count * interval >= window // COVERED_PART
    return result


def limit_of(
    real_limit: Array, batch_allocatable: Array, *, by_allocatable: Bools | bool
) -> Array:  # fmt: skip
    """The limit that satisfaction is measured by, in millicores; -1: unknown, nobody goes.

    By allocatable, nothing allocatable counts as one millicore, so that requests are released.
    """
    lent = np.where(batch_allocatable < 0, -1, np.maximum(batch_allocatable, 1))
    result: Array = np.where(by_allocatable, lent, real_limit)
    return result


def _unsatisfied(
    now: Satisfaction,
    lower_percent: Array | int,
    upper_percent: Array | int,
    usage_percent: Array | int,
) -> Ints:
    safe = np.where(now.request > 0, now.request, 1.0)
    share = now.limit / safe
    excess = now.request * (upper_percent / PERCENT - share)
    starved = (share <= lower_percent / PERCENT) & (now.request > 0)
    hurts = starved & _is_used_up(now, usage_percent)
    result: Ints = np.where(hurts, np.maximum(_whole(excess), 0), 0)
    return result


def _is_used_up(now: Satisfaction, usage_percent: Array | int) -> Bools:
    """Best-effort work uses what it may: otherwise a low limit hurts nobody."""
    safe = np.where(now.limit > 0, now.limit, 1.0)
    full = now.used / safe >= usage_percent / PERCENT
    result: Bools = (now.limit > 0) & ((now.limit < CORE_MILLI) | full)
    return result


def _whole(amounts: Array) -> Ints:
    """Truncated towards zero."""
    result: Ints = np.trunc(np.clip(amounts, -LARGEST, LARGEST)).astype(np.int64)
    return result
