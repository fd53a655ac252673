"""Which best-effort work was probably at fault where a service left its objective. Pure.

One simple statistic for each best-effort pod of a node, over the node's steps:

- share: of all the CPU that best-effort pods of the node used while a service of it was beyond its
  objective, the part that was this pod's;
- correlation: Pearson's r between the pod's CPU (0 where it did not run) and how long the online
  pod that waited most had to wait, over the whole recording;
- score = share x max(correlation, 0), from 0 to 1.

It says who was busy when it hurt, and whose busyness went with the waiting. It proves nothing: two
pods that ran at the same times look alike, and work on other nodes is not seen.
"""

from __future__ import annotations

import numpy as np

from streams.report.grid import Floats
from streams.report.model import Suspect
from streams.report.pods import Use

LEAST_STEPS = 20
"""Fewer steps with a known wait say nothing."""
LEAST_SCORE = 0.01


def of_node(use: Use, beyond: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[Suspect]:
    """The suspects of one node, the likeliest first; ``beyond`` [step]."""
    mine = use.rows(online=False)
    waiting = use.waiting_most()
    known = ~np.isnan(waiting)
    during = beyond & known
    if not len(mine) or int(known.sum()) < LEAST_STEPS or not during.any():
        return []
    cores = np.nan_to_num(use.cores[mine])
    used = cores[:, during].sum(axis=1)
    whole = float(used.sum())
    if whole <= 0:
        return []
    found = []
    for row, pod in enumerate(mine.tolist()):
        r = correlation(cores[row, known], waiting[known])
        share = float(used[row]) / whole
        fact = use.facts[pod]
        found.append(
            Suspect(
                node=use.node, pod=fact.label or use.uids[pod], workload=fact.workload,
                score=round(share * max(r, 0.0), 3), share_percent=round(100 * share, 1),
                correlation=round(r, 2),
                beyond_cores=round(float(cores[row, during].mean()), 2),
                calm_cores=_mean(cores[row, known & ~beyond]),
            )
        )  # fmt: skip
    found.sort(key=lambda one: (-one.score, one.pod))
    return [one for one in found if one.score >= LEAST_SCORE]


def correlation(left: Floats, right: Floats) -> float:
    """Pearson's r; 0 where one of the two does not change."""
    a, b = left - left.mean(), right - right.mean()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > 0 else 0.0


def _mean(values: Floats) -> float:
    return round(float(values.mean()), 2) if len(values) else 0.0
