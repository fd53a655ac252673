"""Small random fleets for tests of the extender's law."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
from hypothesis import strategies as st

from agents.placement.load import AssignedPods, Load, Reports, assigned_load, plain_view
from agents.table import Ints

NOW_MS = 1_700_000_000_000
TIB = 1 << 40


@dataclass(frozen=True)
class Fleet:
    """Nodes with their reports and pods."""

    reports: Reports
    pods: AssignedPods
    allocatable: Ints

    @property
    def load(self) -> Load:
        return assigned_load(self.reports, self.pods)

    @property
    def view(self) -> Ints:
        return plain_view(self.reports, self.load)

    def permuted(self, order: Ints) -> Fleet:
        """The same nodes in another order, pods still on theirs, pods reversed."""
        old, pods = self.reports, self.pods
        place = np.argsort(order)
        reports = Reports(
            old.known[order], old.reported_ms[order], old.interval_ms[order], old.usage[order]
        )
        moved = AssignedPods(
            place[pods.owner][::-1], pods.estimate[::-1], pods.usage[::-1], pods.prod[::-1],
            pods.reported_prod[::-1], pods.assigned_ms[::-1], pods.estimate_until_ms[::-1],
        )  # fmt: skip
        return Fleet(reports, moved, self.allocatable[order])

    def busier(self, more: Ints) -> Fleet:
        """As it is, with ``more`` reported usage [n, 2] where there is a report."""
        usage = np.where(self.reports.usage >= 0, self.reports.usage + more, -1)
        return replace(self, reports=replace(self.reports, usage=usage))


def shuffled(count: int, random: Random) -> Ints:
    """The numbers below ``count`` in some order."""
    order = list(range(count))
    random.shuffle(order)
    return np.array(order, dtype=np.int64)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """1 to 6 nodes, some without a report, and 0 to 12 pods."""
    count = draw(st.integers(1, 6))
    seed = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pods = draw(st.integers(0, 12))
    usage = np.stack([seed.integers(0, 80_000, count), seed.integers(0, TIB, count)], axis=1)
    usage[seed.random(count) < 0.2] = -1
    pod_usage = np.stack([seed.integers(0, 9000, pods), seed.integers(0, TIB // 9, pods)], axis=1)
    pod_usage[seed.random(pods) < 0.3] = -1
    estimate = np.stack([seed.integers(0, 9000, pods), seed.integers(0, TIB // 9, pods)], axis=1)
    capacity = np.stack([seed.integers(0, 96_000, count), seed.integers(0, TIB, count)], axis=1)
    ages_ms = seed.integers(0, 400_000, count)
    return Fleet(
        Reports(
            seed.random(count) < 0.9,
            np.where(seed.random(count) < 0.9, NOW_MS - ages_ms, -1),
            np.full(count, 60_000),
            usage,
        ),
        AssignedPods(
            seed.integers(0, count, pods), estimate, pod_usage, seed.random(pods) < 0.5,
            seed.random(pods) < 0.5, NOW_MS - seed.integers(0, 400_000, pods), np.full(pods, -1),
        ),
        capacity,
    )  # fmt: skip
