"""Bucket tables: exact, and equal to the logarithm that they replace."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.prediction import fleet
from agents.prediction.buckets import Buckets, exponential, find, linear

CORES = exponential(1024.0, 0.025, 1.05)


def by_logarithm(value: float, first: float, ratio: float, count: int) -> float:
    """The formula's answer before it is cut to a whole number."""
    if value < first:
        return 0.0
    return min(math.log(value * (ratio - 1) / first + 1) / math.log(ratio), count - 1)


def found(buckets: Buckets, value: float) -> int:
    return int(find(buckets, np.array([value]))[0])


def test_the_peers_schemes_have_the_peers_sizes() -> None:
    assert (fleet.CPU_BUCKETS.count, fleet.MEMORY_BUCKETS.count) == (158, 205)
    assert CORES.count == 158
    assert linear(5.0, 0.3).count == 18


def test_each_bucket_begins_where_the_one_before_ends() -> None:
    third = Fraction(40) * (1 + Fraction(3, 2) + Fraction(9, 4))
    table = exponential(500.0, 40.0, 1.5)
    assert table.starts[:4].tolist() == [0.0, 40.0, 100.0, float(third)]
    assert table.answers[:-1].tolist() == table.starts[1:].tolist()
    assert table.answers[-1] == table.starts[-1]


@given(st.floats(0, 5000))
def test_exponential_find_is_the_formula(value: float) -> None:
    exact = by_logarithm(value, 0.025, 1.05, CORES.count)
    if abs(exact - round(exact)) > 1e-9:  # on an edge the logarithm itself is not sure
        assert found(CORES, value) == int(exact)


@given(st.floats(-5, 50), st.sampled_from([0.1, 0.3, 1.0, 0.7]))
def test_linear_find_is_the_formula_to_the_last_bit(value: float, size: float) -> None:
    table = linear(20.0, size)
    assert found(table, value) == min(max(int(value / size), 0), table.count - 1)


@pytest.mark.parametrize("table", [fleet.CPU_BUCKETS, fleet.MEMORY_BUCKETS, CORES])
def test_an_edge_belongs_to_its_own_bucket(table: Buckets) -> None:
    every = np.arange(table.count)
    assert (find(table, table.starts) == every).all()
    below = np.nextafter(table.starts[1:], -np.inf)
    assert (find(table, below) == every[:-1]).all()


def test_tables_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        CORES.starts[0] = 1


@pytest.mark.parametrize(
    "table", [fleet.CPU_BUCKETS, fleet.MEMORY_BUCKETS, linear(100.0, 0.3), linear(1.0, 1.0)]
)
@given(st.floats(-(2.0**50), 2.0**50) | st.floats(0, 120))
def test_cells_find_what_a_search_finds(table: Buckets, value: float) -> None:
    assert found(table, value) == table.cuts.searchsorted(value, side="right")
