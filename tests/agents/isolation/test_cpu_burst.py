"""Burst of online pods: state of the shared CPUs, kernel burst, moving quotas, the limiter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.isolation import burst_limiter as limiter
from agents.isolation import cpu_burst as law
from agents.isolation.cpu_burst import COOLING, DOWN, IDLE, OVERLOAD, REMAIN, RESET, UNKNOWN, UP
from agents.table import Ints
from schemas.policy import CpuBurst


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("cpus", "pinned", "node", "outside", "state"),
    [
        (16, 8000, 8000, 4401, IDLE),
        (16, 8000, 8000, 4400, COOLING),
        (16, 8000, 8000, 4000, OVERLOAD),
        (16, 0, 7200, 0, COOLING),
        (16, 0, 7199, 0, IDLE),
        (8, 8000, 100, 0, OVERLOAD),
        (16, 0, -1, 0, UNKNOWN),
        (0, 0, 500, 0, UNKNOWN),
    ],
)
def test_state_of_the_pool(cpus: int, pinned: int, node: int, outside: int, state: int) -> None:
    found = law.node_state(ints(cpus), ints(pinned), ints(node), ints(outside), 50, 90)
    assert found.tolist() == [state]


@given(
    st.lists(st.tuples(st.integers(1, 512), st.integers(0, 512_000), st.integers(0, 512_000)),
             min_size=1, max_size=6),
    st.integers(1, 100), st.integers(0, 100),
)  # fmt: skip
def test_more_use_is_never_a_better_state(
    rows: list[tuple[int, int, int]], threshold: int, cooling: int
) -> None:
    cpus, pinned, node = np.array(rows, dtype=np.int64).T
    none = np.zeros_like(cpus)
    state = law.node_state(cpus, pinned, node, none, threshold, cooling)
    assert (law.node_state(cpus, pinned, node + 500, none, threshold, cooling) >= state).all()
    assert (law.node_state(cpus, pinned, node, none + 500, threshold, cooling) <= state).all()
    back = law.node_state(cpus[::-1], pinned[::-1], node[::-1], none, threshold, cooling)
    assert (back[::-1] == state).all()


def test_burst_is_a_share_of_the_limit_and_a_kernel_takes_no_more_than_the_quota() -> None:
    limit = ints(2500, -1, 1000, 1000)
    burst = law.burst_us(limit, ints(1000, 1000, 50, 50), np.array([True, True, True, False]))
    assert burst.tolist() == [2_500_000, 0, 50_000, 0]
    assert law.kernel_burst_us(burst, ints(250_000, 5, 100_000, 7)).tolist() == [
        250_000,
        0,
        50_000,
        0,
    ]
    assert law.kernel_burst_us(ints(10**9, 10**9), ints(10**9, -1)).tolist() == [10**8, 0]


def test_a_pods_own_wish_overrules_the_nodes_key_by_key() -> None:
    node = law.config_of(CpuBurst(policy="auto"))
    assert law.merge(node, None) == node == law.merge(node, law.BurstConfig())
    merged = law.merge(node, law.BurstConfig(policy="none", quota_burst_period_s=0))
    assert merged == law.BurstConfig("none", 1000, 300, 0)


def moved(state: int, *, on: bool = True, percent: int = 300, period: int = -1,
          allows: bool = True, throttled: int = 1) -> int:  # fmt: skip
    (what,) = law.operation(
        ints(state), np.array([on]), ints(percent), ints(period), np.array([allows]),
        ints(throttled),
    ).tolist()  # fmt: skip
    return int(what)


def test_what_becomes_of_a_quota() -> None:
    assert moved(IDLE) == UP
    assert moved(IDLE, throttled=0) == moved(IDLE, throttled=-1) == REMAIN
    assert moved(COOLING) == moved(UNKNOWN) == REMAIN
    assert moved(OVERLOAD) == moved(OVERLOAD, throttled=0) == DOWN
    assert moved(IDLE, period=60, allows=False) == DOWN
    assert moved(IDLE, period=-1, allows=False) == UP
    assert moved(IDLE, period=60, percent=99) == DOWN
    for state in (UNKNOWN, IDLE, COOLING, OVERLOAD):
        assert moved(state, on=False, period=60, allows=False) == RESET


ROWS = st.lists(
    st.tuples(
        st.integers(-1, 64_000), st.integers(-1, 40_000_000), st.integers(-1, 1000),
        st.sampled_from([RESET, DOWN, REMAIN, UP]),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@given(ROWS)
def test_a_quota_lies_between_base_and_ceiling(rows: list[tuple[int, int, int, int]]) -> None:
    limit, now, percent, what = np.array(rows, dtype=np.int64).T
    after = law.quota_us(limit, now, percent, what, 120, 80)
    bound = limit > 0
    base = limit * 100
    assert (after[~bound] == now[~bound]).all()
    assert (after[bound] >= base[bound]).all()
    assert (after[bound] <= np.maximum(base * percent // 100, base)[bound]).all()
    assert (after[bound & (what == RESET)] == base[bound & (what == RESET)]).all()
    back = law.quota_us(limit[::-1], now[::-1], percent[::-1], what[::-1], 120, 80)
    assert (back[::-1] == after).all()


def test_a_pod_moves_with_its_containers_and_an_unlimited_one_stays() -> None:
    pods = law.pod_quota_us(ints(500, -1, 300), ints(0, 0, 1, 2), ints(20, -50, 90, 0))
    assert pods.tolist() == [470, -1, 300]


def test_tokens_are_spent_above_the_limit_and_saved_clearly_below() -> None:
    size = limiter.capacity(ints(*[60_000] * 6), ints(*[300] * 6))
    assert size.tolist() == [12_000_000] * 6
    assert limiter.start(size).tolist() == [3_000_000] * 6
    usage = ints(150, 100, 99, 60, 59, -1)
    after = limiter.spend(np.zeros_like(usage), size, usage, ints(*[500] * 6), 60)
    assert after.tolist() == [-25_000, 0, 0, 0, 20_500, 0]
    assert limiter.allows(after).tolist() == [False, False, False, False, True, False]


def test_without_a_period_or_a_ceiling_there_is_nothing_to_spend() -> None:
    size = limiter.capacity(ints(0, -1000, 60_000), ints(300, 300, 90))
    assert size.tolist() == [0, 0, 0]
    assert not limiter.allows(
        limiter.spend(ints(5, 5, 5), size, ints(0, 0, 0), ints(9, 9, 9), 60)
    ).any()


@given(
    st.integers(0, 10**9), st.integers(-(10**9), 10**9), st.integers(-1, 400),
    st.lists(st.integers(0, 60_000), min_size=1, max_size=5),
)  # fmt: skip
def test_tokens_stay_within_capacity_and_cuts_do_not_matter(
    size: int, tokens: int, usage: int, cuts: list[int]
) -> None:
    start = np.clip(ints(tokens), -size, size)
    whole = limiter.spend(start, ints(size), ints(usage), ints(sum(cuts)), 60)
    step = start
    for cut in cuts:
        step = limiter.spend(step, ints(size), ints(usage), ints(cut), 60)
        assert abs(int(step[0])) <= size
    assert step.tolist() == whole.tolist()
    lower = limiter.spend(start, ints(size), ints(min(usage + 1, 400)), ints(sum(cuts)), 60)
    assert usage < 0 or (lower <= whole).all()
