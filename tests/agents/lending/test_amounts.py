"""Shares and sums are exact, whoever adds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agents.lending.amounts import LARGEST_SUM, permille_of, share_of, sums, up


@given(st.integers(0, 2**60), st.integers(0, 1000))
def test_a_permille_is_exact(amount: int, permille: int) -> None:
    assert permille_of(np.array([amount]), permille).tolist() == [amount * permille // 1000]


@given(st.integers(0, 2**50), st.integers(0, 200))
def test_a_share_is_the_peers_float(amount: int, percent: int) -> None:
    expected = int(float(amount) * (float(percent) / 100))
    assert share_of(np.array([amount]), percent).tolist() == [expected]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**61)), max_size=40))
def test_sums_are_exact_until_they_stop(items: list[tuple[int, int]]) -> None:
    owner = np.array([at for at, _ in items], dtype=np.int64)
    values = np.array([[value] for _, value in items], dtype=np.int64).reshape(-1, 1)
    whole = [min(sum(v for at, v in items if at == n), LARGEST_SUM) for n in range(4)]
    assert sums(values, owner, 4)[:, 0].tolist() == whole


@given(st.integers(0, 2**62), st.integers(1, 62))
def test_up_never_gives_less(amount: int, parts: int) -> None:
    (part,) = up(np.array([amount]), np.array([parts])).tolist()
    assert part * parts >= amount > (part - 1) * parts
