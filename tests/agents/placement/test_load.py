"""How loaded a node is for a pod that comes now."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.placement.load import (
    Aggregates,
    AssignedPods,
    Load,
    Reports,
    aggregated_view,
    assigned_load,
    plain_view,
    stale,
)
from agents.table import Ints
from tests.agents.placement.fleets import NOW_MS, Fleet, fleets, shuffled

USAGE = (5000, 100)


def report(reported_ms: int = NOW_MS, usage: tuple[int, int] = USAGE) -> Reports:
    return Reports(np.array([True]), np.array([reported_ms]), np.array([60_000]), np.array([usage]))


def pod(
    usage: tuple[int, int] = (-1, -1), age_ms: int = 100_000, prod: bool = True,
    reported_prod: bool = True, until_ms: int = -1,
) -> AssignedPods:  # fmt: skip
    return AssignedPods(
        np.array([0]), np.array([[1000, 50]]), np.array([usage]), np.array([prod]),
        np.array([reported_prod]), np.array([NOW_MS - age_ms]), np.array([until_ms]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given_", "pending"),
    [
        (pod(), [1000, 50]),  # the report misses it
        (pod(usage=(400, 60)), [0, 0]),  # measured long enough
        (pod(usage=(400, 60), age_ms=10_000), [600, 0]),  # measured for part of a period
        (pod(usage=(400, 60), age_ms=60_000), [0, 0]),  # a whole period is enough
        (pod(usage=(400, 60), until_ms=NOW_MS + 1), [600, 0]),
        (pod(usage=(400, 60), until_ms=NOW_MS), [0, 0]),
    ],
)
def test_what_a_report_does_not_show_yet_is_added(given_: AssignedPods, pending: list[int]) -> None:
    found = assigned_load(report(), given_)
    assert found.pending.tolist() == [pending]
    assert found.full.tolist() == [[1000, 50]]
    assert plain_view(report(), found).tolist() == [[5000 + pending[0], 100 + pending[1]]]


@pytest.mark.parametrize(
    ("given_", "prod"),
    [
        (pod(usage=(400, 60)), [400, 60]),
        (pod(usage=(400, 60), age_ms=10_000), [1000, 60]),
        (pod(usage=(400, 60), reported_prod=False), [1000, 50]),  # the full estimate
        (pod(), [1000, 50]),
        (pod(usage=(400, 60), prod=False), [0, 0]),
    ],
)
def test_the_prod_view(given_: AssignedPods, prod: list[int]) -> None:
    assert assigned_load(report(), given_).prod.tolist() == [prod]


@pytest.mark.parametrize(
    ("kind", "window_ms", "view"),
    [
        ("p95", 300_000, [8000, 150]),
        ("p95", 0, [9000, 150]),  # the longest that has data
        ("p95", 900_000, [1000, 50]),  # no data: all estimates instead
        ("p50", 0, [6000, 150]),  # none at all: plain usage
        ("p50", 300_000, [1000, 50]),
    ],
)
def test_views_by_percentile(kind: str, window_ms: int, view: list[int]) -> None:
    usage = np.array([[[8000, 100]], [[7000, 100]], [[-1, -1]]])
    windows = Aggregates(("p95", "p95", "p95"), (1_800_000, 300_000, 3_600_000), usage)
    found = aggregated_view(report(), assigned_load(report(), pod()), windows, kind, window_ms)
    assert found.tolist() == [view]


def test_stale_is_equal_or_older_and_never_filled() -> None:
    def at(ms: int, after_ms: int) -> bool:
        return bool(stale(report(ms), NOW_MS, after_ms)[0])

    assert at(NOW_MS - 180_000, 180_000)
    assert not at(NOW_MS - 179_999, 180_000)
    assert not at(NOW_MS - 10**9, 0)
    assert at(-1, 0)


@given(fleets(), st.randoms())
def test_nodes_and_pods_in_any_order_give_the_same(fleet: Fleet, random: Random) -> None:
    order = shuffled(len(fleet.allocatable), random)
    moved = fleet.permuted(order)
    for ours, theirs in zip(columns(fleet.load), columns(moved.load), strict=True):
        assert ours[order].tolist() == theirs.tolist()


@given(fleets())
def test_load_is_never_negative_and_pending_never_above_the_estimates(fleet: Fleet) -> None:
    found = fleet.load
    assert all((column >= 0).all() for column in columns(found))
    assert (found.pending <= found.full).all()
    again = fleet.load
    assert [c.tobytes() for c in columns(found)] == [c.tobytes() for c in columns(again)]


def columns(found: Load) -> tuple[Ints, ...]:
    return found.pending, found.full, found.prod
