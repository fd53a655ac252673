"""Which nodes are to be relieved and which can take: classes by low and high limits.

Called by the scheduler bridge's descheduler once a round for all nodes with a fresh report.
Rules: koordinator `descheduler/framework/plugins/loadaware/utilization_util.go` (classifyNodes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agents.placement import utilization
from agents.table import Bools, Ints

CLASSES = ("normal", "low", "both_low", "high", "prod_low", "prod_high")
NORMAL, LOW, BOTH_LOW, HIGH, PROD_LOW, PROD_HIGH = range(len(CLASSES))
"""Sources are HIGH and PROD_HIGH; targets LOW, BOTH_LOW and, for prod pods, PROD_LOW."""
Percents = Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Percent by resource of any kind; by deviation, distances from the mean."""

    low: Percents
    high: Percents
    prod_low: Percents
    prod_high: Percents
    deviation: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of all arrays: what is named anywhere, sorted."""
        return utilization.names_of(self.low, self.high, self.prod_low, self.prod_high)


@dataclass(frozen=True, slots=True)
class Classified:
    """The class of each node [n] and the limits [n, r] that it follows from."""

    kind: Ints  # of CLASSES
    low: Ints
    high: Ints
    prod_low: Ints
    prod_high: Ints


def classify(
    bounds: Bounds, usage: Ints, prod_usage: Ints, allocatable: Ints, unschedulable: Bools
) -> Classified:
    """Low: every resource at most its low limit; high: any above its high one.

    Arrays are [n, r] in the order of ``bounds.names``; usage of -1 is not looked at. A node that
    takes no pods is never low. What is low for all pods may still be high for prod ones: it is
    then a source and never a target.
    """
    names = bounds.names
    low, high = utilization.limits(
        usage, allocatable, *utilization.complete(bounds.low, bounds.high, names, bounds.deviation),
        bounds.deviation,
    )  # fmt: skip
    prod_low, prod_high = utilization.limits(
        prod_usage, allocatable,
        *utilization.complete(bounds.prod_low, bounds.prod_high, names, bounds.deviation),
        bounds.deviation,
    )  # fmt: skip
    under = _all_within(usage, low) & ~unschedulable
    over = ~_all_within(usage, high)
    prod_under = _all_within(prod_usage, prod_low) & ~unschedulable
    prod_over = ~_all_within(prod_usage, prod_high)
    kind = np.select(
        [under & prod_over, under & prod_under, under, over, prod_over, prod_under],
        [PROD_HIGH, BOTH_LOW, LOW, HIGH, PROD_HIGH, PROD_LOW],
        NORMAL,
    )
    return Classified(kind, low, high, prod_low, prod_high)


def sources(kind: Ints) -> Bools:
    """Nodes that pods are to leave."""
    result: Bools = (kind == HIGH) | (kind == PROD_HIGH)
    return result


def targets(kind: Ints) -> Bools:
    """Nodes that can take pods of any class; marks against them are forgotten."""
    result: Bools = (kind == LOW) | (kind == BOTH_LOW)
    return result


def room(kind: Ints, usage: Ints, limits: Classified, names: Sequence[str]) -> dict[str, int]:
    """What targets can take in all, by resource, up to their high limits."""
    free = np.where(targets(kind)[:, None], np.maximum(limits.high - usage, 0), 0)
    return dict(zip(names, free.sum(axis=0, dtype=np.int64).tolist(), strict=True))


def _all_within(usage: Ints, limit: Ints) -> Bools:
    result: Bools = ~np.any(utilization.exceeds(usage, limit), axis=1)
    return result
