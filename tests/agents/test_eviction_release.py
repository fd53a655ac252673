"""How much has to go: figures worked out by hand from the formulas, and what must always hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.eviction import plan, release
from agents.eviction.candidate import Candidate
from agents.table import Ints

AMOUNTS = st.integers(0, 1 << 50)
PERCENTS = st.integers(0, 100)


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def view(used: int, request: int, limit: int) -> release.Satisfaction:
    return release.Satisfaction(*(np.array([float(x)]) for x in (used, request, limit)))


def starved(mean: tuple[int, int, int], latest: tuple[int, int, int], enough: bool = True) -> int:
    return int(
        release.by_satisfaction(view(*mean), view(*latest), np.array([enough]), 30, 40, 90)[0]
    )


def test_by_usage_counts_whole_percents_from_the_lower_mark() -> None:
    found = release.by_usage(ints(1000, 1000, 1000), ints(709, 699, 1000), 70, 60)
    assert found.tolist() == [100, 0, 400]


@given(st.integers(1, 1 << 50), AMOUNTS, st.integers(1, 100), st.integers(0, 99))
def test_by_usage_never_leaves_the_capacity_and_grows_with_use(
    capacity: int, used: int, threshold: int, lower: int
) -> None:
    used = min(used, capacity)
    less, more = release.by_usage(ints(capacity, capacity), ints(used // 2, used), threshold, lower)
    assert 0 <= less <= more <= capacity


def test_by_allocatable_takes_back_what_exceeds_the_lower_mark() -> None:
    asked, there = ints(900, 800, 801, 50), ints(1000, 1000, 1000, 0)
    by_cpu = release.by_allocatable(asked, there, 80, 50, by_ratio=False)
    assert by_cpu.tolist() == [400, 0, 301, 50]
    by_memory = release.by_allocatable(asked, there, 80, 50, by_ratio=True)
    assert by_memory.tolist() == [400, 0, 301, 50]


@given(AMOUNTS, st.integers(1, 1 << 50), PERCENTS, PERCENTS, st.booleans())
def test_by_allocatable_never_takes_more_than_was_asked_for(
    asked: int, there: int, threshold: int, lower: int, by_ratio: bool
) -> None:
    found = release.by_allocatable(ints(asked), ints(there), threshold, lower, by_ratio=by_ratio)
    slack = 1 + (asked + there >> 50)  # a float's last bit
    assert 0 <= found[0] <= asked + slack


def test_satisfaction_must_hurt_over_the_window_and_now() -> None:
    assert starved((9500, 50_000, 10_000), (9500, 50_000, 10_000)) == 10_000
    assert starved((9500, 50_000, 10_000), (13_000, 50_000, 14_000)) == 6000  # the smaller
    assert starved((9500, 50_000, 10_000), (8900, 50_000, 10_000)) == 0  # not used up now
    assert starved((8900, 50_000, 10_000), (9500, 50_000, 10_000)) == 0
    assert starved((9500, 50_000, 10_000), (20_000, 50_000, 20_000)) == 0  # satisfied now
    assert starved((9500, 50_000, 10_000), (9500, 50_000, 10_000), enough=False) == 0
    assert starved((0, 50_000, 999), (0, 50_000, 999)) == 19_001  # below a core: used up
    assert starved((5, 50_000, -1), (5, 50_000, -1)) == 0  # no limit
    assert starved((9500, 0, 10_000), (9500, 0, 10_000)) == 0  # nothing asked for


@given(*[st.integers(-1, 1 << 40)] * 6, PERCENTS, PERCENTS, PERCENTS)
def test_satisfaction_never_releases_more_than_is_requested(
    used: int, asked: int, limit: int, used2: int, asked2: int, limit2: int, low: int, high: int,
    full: int,
) -> None:  # fmt: skip
    enough = np.array([True])
    found = release.by_satisfaction(
        view(used, asked, limit), view(used2, asked2, limit2), enough, low, high, full
    )
    assert 0 <= found[0] <= max(asked, 0)


def test_a_window_needs_a_third_of_its_points() -> None:
    assert release.covers(ints(0, 3, 4), 1, 13).tolist() == [False, False, True]
    assert release.covers(ints(0, 1), 1, 1).tolist() == [True, True]


def test_the_limit_by_allocatable() -> None:
    real, lent = np.array([5.0, 5.0, 5.0]), np.array([-1.0, 0.0, 7.0])
    assert release.limit_of(real, lent, by_allocatable=True).tolist() == [-1, 1, 7]
    assert release.limit_of(real, lent, by_allocatable=False).tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    ("resource", "feature", "rule", "valid"),
    [
        ("memory", plan.BEST_EFFORT, plan.Rule(usage_percent=0), True),
        ("memory", plan.BEST_EFFORT, plan.Rule(usage_percent=70, usage_lower_percent=70), False),
        ("memory", plan.USAGE, plan.Rule(usage_percent=70), False),
        ("cpu", plan.USAGE, plan.Rule(usage_percent=70, usage_priority=0), True),
        ("cpu", plan.BEST_EFFORT, plan.Rule(usage_percent=70), False),
        (
            "cpu", plan.BEST_EFFORT,
            plan.Rule(satisfaction_lower_percent=60, satisfaction_upper_percent=60), True,
        ),
        (
            "cpu", plan.BEST_EFFORT,
            plan.Rule(satisfaction_lower_percent=61, satisfaction_upper_percent=70), False,
        ),
        ("cpu", plan.ALLOCATABLE, plan.Rule(None, None, None, 100, 90, 7999), True),
        ("cpu", plan.ALLOCATABLE, plan.Rule(None, None, None, 100, 90, 8000), False),
        ("cpu", plan.ALLOCATABLE, plan.Rule(None, None, None, 100, None, 100), False),
        ("cpu", plan.ALLOCATABLE, None, False),
    ],
)  # fmt: skip
def test_a_feature_runs_only_with_valid_thresholds(
    resource: str, feature: str, rule: plan.Rule | None, valid: bool
) -> None:
    assert plan.is_valid(resource, feature, rule) is valid


def test_only_overdrawn_kinds_and_pods_below_the_priority_count() -> None:
    rule = plan.Rule(None, None, None, 100, 50, 5999)
    pods = [
        Candidate("a", 5500, request=900, kind="batch-cpu"),
        Candidate("b", 5600, request=200, kind="batch-cpu"),
        Candidate("c", 7500, request=9000, kind="mid-cpu"),
        Candidate("d", 3500, request=10, kind="cpu"),
    ]
    there = {"batch-cpu": 1000, "cpu": 100}
    assert plan.overdrawn("cpu", rule, there, pods) == {"batch-cpu": 600}
    assert plan.overdrawn("cpu", rule, {}, pods) == {"batch-cpu": 1100, "cpu": 10}
    assert plan.overdrawn("cpu", plan.Rule(), there, pods) == {}
