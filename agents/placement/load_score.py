"""How good each node is for one more pod, 0 to 100: the less loaded the better.

Called by the scheduler bridge's extender with all candidate nodes at once. Rules: koordinator
`loadaware/load_aware.go` (Score); beyond it, nodes whose online pods are ill and nodes that went
silent are weighed down by what policy says. Columns are cpu and memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.placement.load import Reports
from agents.table import Array, Bools, Ints

MOST = 100
REASONS = ("scored", "no_report", "stale", "ill", "stale_and_ill")
SCORED, NO_REPORT, STALE, ILL, STALE_AND_ILL = range(len(REASONS))


@dataclass(frozen=True, slots=True)
class Scored:
    """The answer [n] and the terms it is made of, each [n]."""

    score: Ints
    reason: Ints  # of REASONS
    terms: dict[str, Ints]


def free_percent(used: Array, capacity: Array) -> Ints:
    """(capacity - used) x 100 div capacity; 0 where there is no capacity or it is exceeded."""
    some = np.where(capacity > 0, capacity, 1)
    result: Ints = np.where((capacity > 0) & (used <= capacity), (capacity - used) * 100 // some, 0)
    return result


def kept_permille(
    stale: Bools, ill: Bools, stale_keep_permille: int, ill_keep_permille: int
) -> Ints:
    """What is left of a node's score [n]; stale and ill both count."""
    kept = np.where(stale, stale_keep_permille, 1000)
    result: Ints = np.where(ill, kept * ill_keep_permille // 1000, kept)
    return result


def score(
    reports: Reports, view: Ints, estimate: Array, capacity: Ints, weights: tuple[int, int],
    dominant_weight: int, stale: Bools, ill: Bools, stale_keep_permille: int,
    ill_keep_permille: int,
) -> Scored:  # fmt: skip
    """Weighted mean of free percent after the pod came, and of the least of both.

    Without a report 0; a stale node keeps ``stale_keep_permille`` of its score (the peer: 0), an
    ill one ``ill_keep_permille``. All weights 0: 0.
    """
    used = view + estimate
    free = free_percent(used, capacity)
    dominant = np.minimum(free[:, 0], free[:, 1])
    total = weights[0] + weights[1] + dominant_weight
    sum_of = free[:, 0] * weights[0] + free[:, 1] * weights[1] + dominant * dominant_weight
    unreported = ~reports.known | (reports.usage < 0).all(axis=1)
    plain = np.where(unreported, 0, sum_of // total) if total > 0 else np.zeros_like(dominant)
    kept = kept_permille(stale, ill, stale_keep_permille, ill_keep_permille)
    reason = np.where(stale, np.where(ill, STALE_AND_ILL, STALE), np.where(ill, ILL, SCORED))
    terms = {
        "used_cpu_milli": used[:, 0],
        "used_memory_bytes": used[:, 1],
        "cpu": free[:, 0],
        "memory": free[:, 1],
        "dominant": dominant,
        "plain": plain,
        "kept_permille": kept,
    }
    return Scored(plain * kept // 1000, np.where(unreported, NO_REPORT, reason), terms)
