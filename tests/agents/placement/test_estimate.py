"""What a pod is expected to use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.placement.estimate import (
    estimate,
    estimate_until_ms,
    fallback,
    overlay,
    quantities,
)
from schemas.records import PriorityClass

DEFAULT = (250, 200 << 20)


def one(request: int, limit: int, factor: int, least: int = 250) -> int:
    asked, bound, fallbacks = (np.array([[value, 0]]) for value in (request, limit, least))
    return int(estimate(asked, bound, fallbacks, np.array([factor, 100]))[0, 0])


@pytest.mark.parametrize(
    ("request_milli", "limit_milli", "factor", "expected"),
    [
        (1000, 0, 85, 850),
        (1000, 2000, 85, 1700),  # the larger counts
        (1000, 1000, 150, 1000),  # at most the limit
        (1000, 0, 150, 1500),  # none to be held to
        (0, 0, 85, 250),
        (10, 0, 85, 9),  # 8.5 goes up
        (10, 0, 84, 8),
        (1, 0, 10, 0),
        (3000, 1000, 85, 1000),
    ],
)
def test_the_formula(request_milli: int, limit_milli: int, factor: int, expected: int) -> None:
    assert one(request_milli, limit_milli, factor) == expected


@pytest.mark.parametrize(
    ("kind", "asked", "least"),
    [("prod", (1, 2), DEFAULT), ("", (1, 2), DEFAULT), ("mid", (3, 4), (0, 0)),
     ("batch", (5, 6), DEFAULT), ("free", (0, 0), (0, 0))],
)  # fmt: skip
def test_each_class_asks_under_its_own_names(
    kind: PriorityClass, asked: tuple[int, int], least: tuple[int, int]
) -> None:
    resources = {
        "cpu": 1, "memory": 2, "mid-cpu": 3, "mid-memory": 4, "batch-cpu": 5, "batch-memory": 6,
    }  # fmt: skip
    assert quantities(kind, resources) == asked
    assert quantities(kind, {}) == (0, 0)
    assert fallback(kind, DEFAULT) == least


@given(st.integers(0, 2**50), st.integers(0, 2**50), st.integers(0, 1000), st.integers(0, 2**50))
def test_it_grows_with_the_request_and_stays_below_a_limit(
    request_: int, limit: int, factor: int, more: int
) -> None:
    low = one(request_, limit, factor, least=0)
    assert 0 <= low <= one(request_ + more, limit, factor, least=0)
    assert limit == 0 or low <= limit


def test_what_is_said_lies_over_the_base_also_a_zero() -> None:
    assert overlay(np.array([85, 70]), np.array([-1, 0])).tolist() == [85, 0]


@pytest.mark.parametrize(
    ("initialized_ms", "after_assigned", "after_initialized", "until"),
    [(-1, 0, 0, -1), (-1, 30, 0, 1030), (-1, 30, 5, 1030), (1001, 30, 5, 1006),
     (1001, 0, 5, 1006), (1001, 30, 0, 1030)],
)  # fmt: skip
def test_being_initialized_goes_before_being_assigned(
    initialized_ms: int, after_assigned: int, after_initialized: int, until: int
) -> None:
    answer = estimate_until_ms(
        np.array([1000]), np.array([initialized_ms]), after_assigned, after_initialized
    )
    assert answer.tolist() == [until]
