"""Shares, quotas and sums of extended resources, with the peer's corner cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.isolation.by_class import CLASSES, codes
from agents.isolation.extended import (
    LEAST_QUOTA_US,
    LEAST_SHARES,
    MOST_SHARES,
    NO_LIMIT,
    UNSAID,
    Part,
    pod_limit,
    pod_request,
    quota_us,
    setting,
    shares,
)

AMOUNTS = st.integers(-1, 1 << 40)


@pytest.mark.parametrize(
    ("milli", "expected"),
    [(1000, 1024), (1500, 1536), (500, 512), (1, 2), (0, 2), (-1, 2), (1 << 40, 262_144)],
)
def test_shares_of_a_request(milli: int, expected: int) -> None:
    assert shares(milli) == expected


@pytest.mark.parametrize(
    ("milli", "ratio", "expected"),
    [
        (1000, 1000, 100_000),
        (500, 1000, 50_000),
        (9, 1000, 1000),
        (8, 1000, 1000),
        (0, 1000, -1),
        (-1, 1000, -1),
        (1000, 1200, 83_334),
        (1000, 900, 100_000),
        (10, 5000, 1000),
    ],
)
def test_quota_of_a_limit(milli: int, ratio: int, expected: int) -> None:
    assert quota_us(milli, ratio) == expected


def test_a_pod_is_the_sum_of_what_runs_together() -> None:
    parts = [Part(100, 100), Part(UNSAID, 50), Part(300, 300)]
    assert pod_request(parts) == 400
    assert pod_limit(parts, NO_LIMIT) == 450
    assert pod_limit([*parts, Part(5, UNSAID)], 450) == NO_LIMIT
    assert pod_limit([*parts, Part(5, 0)], 450) == NO_LIMIT
    assert pod_request([Part(UNSAID, UNSAID)]) == UNSAID
    assert pod_limit([], 100) == NO_LIMIT


def test_an_init_container_finds_room_beside_those_before_it() -> None:
    sidecar, app = Part(100, 100), Part(300, 300)
    assert pod_limit([sidecar, Part(0, 500, init=True), app], NO_LIMIT) == 600
    assert pod_limit([Part(0, 350, init=True), sidecar, app], NO_LIMIT) == 400
    assert pod_limit([Part(0, UNSAID, init=True), app], NO_LIMIT) == 300
    assert pod_request([Part(900, 900, init=True), app]) == 300


def test_overhead_is_known_from_the_pods_own_sum() -> None:
    assert pod_limit([Part(300, 300)], 420) == 420


def test_best_effort_alone_and_only_when_switched_on() -> None:
    qos = codes(["LSE", "LSR", "LS", "BE", "SYSTEM", ""])
    on, off = setting(qos, enabled=True), setting(qos, enabled=False)
    assert len(CLASSES) == 5
    assert on.managed.tolist() == [False, False, False, True, False, False]
    assert on.value.tolist() == [1] * 6
    assert not off.managed.any()


@given(AMOUNTS, st.integers(1, 5000))
def test_what_the_kernel_takes(milli: int, ratio: int) -> None:
    assert LEAST_SHARES <= shares(milli) <= MOST_SHARES
    found = quota_us(milli, ratio)
    assert found == NO_LIMIT or found >= LEAST_QUOTA_US
    assert (found == NO_LIMIT) == (milli <= 0)


@given(st.lists(st.builds(Part, AMOUNTS, AMOUNTS, st.booleans()), max_size=6), AMOUNTS)
def test_no_container_has_more_than_its_pod(parts: list[Part], own: int) -> None:
    limit = pod_limit(parts, own)
    assert limit == NO_LIMIT or all(part.limit <= limit for part in parts)
