"""Memory protection, throttling, page cache and the sums of the tiers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agents.isolation import memory_qos as law
from agents.isolation.by_class import codes
from agents.table import ABSENT, Ints
from schemas.policy import ClassMemory, MemoryQos

GIB = 1 << 30
SIZES = st.integers(-1, 1 << 50)
PERCENTS = st.integers(-1, 100)


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def test_protection_is_a_share_of_the_request() -> None:
    request = ints(4 * GIB, 3, -1, GIB)
    least = law.protected(request, ints(50, 50, 50, ABSENT))
    assert least.tolist() == [2 * GIB, 1, 0, ABSENT]
    low = ints(GIB, 0, 5, 7)
    assert law.raised(low, least).tolist() == [2 * GIB, 0, 5, 7]


def test_throttling_begins_between_request_and_limit() -> None:
    request, limit = ints(GIB, GIB, GIB, GIB, 0), ints(2 * GIB, -1, -1, 2 * GIB, 0)
    allocatable = ints(9 * GIB, 9 * GIB, GIB // 2, 0, 10_000)
    high = law.high(request, limit, allocatable, ints(50, 25, 50, 0, 100))
    assert high.tolist() == [GIB * 3 // 2, 3 * GIB, GIB * 3 // 4, (1 << 63) - 1, 8192]


@given(st.lists(st.tuples(SIZES, SIZES, PERCENTS, PERCENTS, PERCENTS), min_size=1, max_size=6))
def test_no_setting_is_negative_or_below_what_is_promised(rows: list[tuple[int, ...]]) -> None:
    request, limit, hard, soft, throttle = np.array(rows, dtype=np.int64).T
    least = law.protected(request, hard)
    low = law.raised(law.protected(request, soft), least)
    high = law.raised(law.high(request, limit, np.full_like(limit, GIB), throttle), least)
    for value, percent in ((least, hard), (low, soft), (high, throttle)):
        assert ((value >= 0) == (percent >= 0)).all()
    assert (least <= np.maximum(request, 0)).all()
    assert ((low <= 0) | (low >= least)).all()
    assert ((high <= 0) | (high >= least)).all()
    bounded = (limit >= request) & (throttle > 0) & (limit > 0)
    assert (high[bounded] <= np.maximum(limit, least)[bounded]).all()
    again = law.high(request[::-1], limit[::-1], np.full_like(limit, GIB), throttle[::-1])
    assert (law.raised(again, least[::-1])[::-1] == high).all()


def test_page_cache_by_size_by_share_off_and_overruled() -> None:
    limit = ints(GIB, GIB, -1, GIB, GIB, -1)
    size = ints(2 * GIB, ABSENT, 5, 0, 7, ABSENT)
    percent = ints(10, 50, 50, 50, ABSENT, 50)
    switch = ints(ABSENT, ABSENT, ABSENT, 1, 0, ABSENT)
    cache = law.page_cache(size, percent, switch, ints(1, 0, ABSENT, 1, 1, 1), limit)
    assert cache.size.tolist() == [GIB, GIB // 2, 5, 0, 7, ABSENT]
    assert cache.enabled.tolist() == [1, 1, 1, 1, 0, ABSENT]
    assert cache.sync.tolist() == [1, 0, 0, ABSENT, 1, ABSENT]


@given(st.lists(st.tuples(SIZES, PERCENTS, SIZES), min_size=1, max_size=6))
def test_page_cache_is_within_the_limit(rows: list[tuple[int, int, int]]) -> None:
    size, percent, limit = np.array(rows, dtype=np.int64).T
    none = np.full_like(size, ABSENT)
    cache = law.page_cache(size, percent, none, none, limit)
    assert (cache.size[limit > 0] <= limit[limit > 0]).all()
    assert ((cache.enabled == 1) == (cache.size > 0)).all()
    assert ((cache.enabled == 0) == (cache.size == 0)).all()


def test_the_root_tier_holds_all_and_silent_tiers_are_not_written() -> None:
    place, tier = ints(0, 0, 0, 2, 2), ints(1, 1, 2, 0, 1)
    sums = law.tier_sums(place, tier, ints(5, ABSENT, 7, 3, ABSENT), 3)
    assert sums.tolist() == [[12, 5, 7], [ABSENT] * 3, [3, ABSENT, ABSENT]]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), SIZES), max_size=12).flatmap(
        lambda rows: st.tuples(st.just(rows), st.permutations(rows))
    )
)
def test_sums_do_not_depend_on_the_order_of_pods(
    both: tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]],
) -> None:
    one, other = (
        law.tier_sums(
            ints(*(r[0] for r in rows)), ints(*(r[1] for r in rows)), ints(*(r[2] for r in rows)), 3
        )
        for rows in both
    )
    assert (one == other).all()
    assert (one[:, 0] >= one[:, 1]).all()
    total = sum(max(value, 0) for _, _, value in both[0])
    assert np.maximum(one[:, 0], 0).sum() == total


def test_wishes_come_from_the_class_and_none_from_one_that_is_off() -> None:
    qos = codes(["LSE", "LSR", "LS", "BE", "SYSTEM"])
    rule = MemoryQos(lsr=ClassMemory(enabled=True, min_percent=100, page_cache_sync=True))
    found = law.wishes(qos, rule)
    assert found.min_percent.tolist() == [100, 100, ABSENT, ABSENT, ABSENT]
    assert found.throttling_percent.tolist() == [0, 0, ABSENT, ABSENT, ABSENT]
    assert found.page_cache_bytes.tolist() == [ABSENT] * 5
    assert found.page_cache_sync.tolist() == [1, 1, ABSENT, ABSENT, ABSENT]
