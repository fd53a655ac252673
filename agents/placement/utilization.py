"""How much of a node is used, in percent, and the absolute limits that percents stand for.

Called by the scheduler bridge's descheduler. Formulas, and the order of their floating-point
operations: koordinator `descheduler/framework/plugins/loadaware/utilization_util.go`.
Arrays are [n, r], nodes by resources of any kind; an amount of -1 is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.table import ABSENT, Array, Bools, Ints

Floats = NDArray[np.float64]
ALWAYS_NAMED = "memory"
HUNDREDTH = 0.01  # the peer multiplies by this instead of dividing by 100
DECIMALS = 2  # of a percent, as people read it


@dataclass(frozen=True, slots=True)
class Over:
    """One resource of a node above its limit."""

    resource: str
    usage_percent: float
    threshold_percent: float


def names_of(*thresholds: Mapping[str, float] | None) -> tuple[str, ...]:
    """Resources that any of the thresholds names, and memory; sorted."""
    return tuple(sorted({ALWAYS_NAMED}.union(*(given for given in thresholds if given))))


def complete(
    low: Mapping[str, float] | None, high: Mapping[str, float] | None, names: Iterable[str],
    deviation: bool,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Low and high percent [r]; a resource without a low one is out of it: 100, or no deviation."""
    inert = 0.0 if deviation else 100.0
    low, high = low or {}, high or {}
    pairs = [(low[name], high.get(name, 0.0)) if name in low else (inert, inert) for name in names]
    result = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return result[:, 0], result[:, 1]


def limit_of(percent: Floats, allocatable: Ints) -> Ints:
    """The amount [n, r] that ``percent`` ([r] or [n, r]) stands for, fractions dropped."""
    result: Ints = (percent * HUNDREDTH * allocatable.astype(np.float64)).astype(np.int64)
    return result


def mean_percent(usage: Ints, allocatable: Ints) -> Floats:
    """Mean usage percent [r] over all nodes; a node without the resource counts as unused."""
    known = (allocatable > 0) & (usage >= 0)
    total = np.where(allocatable > 0, allocatable, 1).astype(np.float64)
    percent = np.where(known, usage.astype(np.float64) / total * 100, 0.0)
    # fsum rounds once, so the order of nodes does not matter.
    sums = [math.fsum(column) for column in percent.T.tolist()]
    return np.array(sums, dtype=np.float64) / max(len(usage), 1)


def limits(
    usage: Ints, allocatable: Ints, low: Floats, high: Floats, deviation: bool
) -> tuple[Ints, Ints]:
    """Low and high limits [n, r]; by deviation they lie around the mean, clamped to 0..100.

    By deviation a low of 0 takes the resource out: both limits are the whole allocatable.
    """
    if not deviation:
        return limit_of(low, allocatable), limit_of(high, allocatable)
    mean = mean_percent(usage, allocatable)
    below = limit_of(np.clip(mean - low, 0, 100), allocatable)
    above = limit_of(np.clip(mean + high, 0, 100), allocatable)
    return np.where(low == 0, allocatable, below), np.where(low == 0, allocatable, above)


def exceeds(usage: Ints, limit: Ints) -> Bools:
    """Where usage exceeds the limit [n, r]; what is not known does not."""
    result: Bools = usage > limit
    return result


def whole_percent(usage: Array, allocatable: Array) -> Ints:
    """Usage percent, rounded down; -1 where nothing is allocatable."""
    some = np.where(allocatable > 0, allocatable, 1)
    result: Ints = np.where(allocatable > 0, usage * 100 // some, ABSENT)
    return result


def overutilized(
    names: Iterable[str], usage: Ints, allocatable: Ints, threshold_percent: Floats
) -> list[Over]:
    """Resources of one node [r] above their limits, in the order of ``names``, for its eviction."""
    over = exceeds(usage, limit_of(threshold_percent, allocatable)).tolist()
    columns = zip(
        names, usage.tolist(), allocatable.tolist(), threshold_percent.tolist(), over, strict=True
    )
    return [
        Over(name, round(100 * float(used) / float(total), DECIMALS) if total else 0.0, percent)
        for name, used, total, percent, is_over in columns
        if is_over
    ]
