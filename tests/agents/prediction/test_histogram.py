"""Decaying histograms: weights, percentiles, and that rows never touch each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.prediction import decay, histogram
from agents.prediction.buckets import find, linear
from agents.prediction.histogram import Histograms, Kind
from agents.table import ABSENT, Array, Ints

HOUR_MS = 3_600_000
TENS = Kind(linear(10.0, 1.0), HOUR_MS, 1e-9)
START_MS = 1_700_000_000_000
FRACTIONS = (0.0, 0.5, 0.95, 1.0)
samples = st.lists(
    st.tuples(st.integers(0, 4), st.floats(0, 12), st.integers(0, 200 * HOUR_MS)), max_size=40
)


def rows_of(*rows: int) -> Ints:
    return np.array(rows, dtype=np.int64)


def put(one: Histograms, row: int, value: float, t_ms: int, weight: float = 1.0) -> None:
    places = find(TENS.buckets, np.array([value]))
    histogram.add(TENS, one, rows_of(row), places, t_ms, weight)


def five(given_samples: list[tuple[int, float, int]]) -> Histograms:
    state = histogram.empty(TENS, 5, np.float64)
    for row, value, after in sorted(given_samples, key=lambda s: s[2]):
        put(state, row, value, START_MS + after)
    return state


def answers(state: Histograms, fractions: tuple[float, ...] = FRACTIONS) -> Array:
    return histogram.percentiles(TENS, state, np.arange(len(state.total)), fractions)


@given(st.integers(0, 10**13), st.integers(1, 10**9))
def test_the_factor_is_the_power_of_two(t_ms: int, half_life_ms: int) -> None:
    factor, whole = decay.split(t_ms, half_life_ms)
    assert whole == t_ms // half_life_ms
    assert factor == pytest.approx(2.0 ** (t_ms % half_life_ms / half_life_ms), rel=1e-11)


def test_a_sample_counts_half_after_a_half_life() -> None:
    state = histogram.empty(TENS, 1, np.float64)
    put(state, 0, 1.0, START_MS)
    put(state, 0, 5.0, START_MS + HOUR_MS)
    young, old = state.cells[0, 5], state.cells[0, 1]
    assert young == 2 * old
    assert answers(state, (0.33, 0.34)).tolist() == [[2.0, 6.0]]


def test_a_reference_moves_only_beyond_a_hundred_half_lives() -> None:
    state = histogram.empty(TENS, 1, np.float64)
    begin = START_MS // HOUR_MS * HOUR_MS
    put(state, 0, 1.0, begin)
    first = int(state.reference[0])
    put(state, 0, 2.0, begin + 100 * HOUR_MS)
    assert state.reference[0] == first
    put(state, 0, 3.0, begin + 100 * HOUR_MS + 1)
    assert state.reference[0] == first + 100
    assert state.cells[0, 2] == 1.0
    assert state.cells[0, 1] == 2.0**-100


@given(samples)
def test_moving_the_reference_moves_no_percentile(
    given_samples: list[tuple[int, float, int]],
) -> None:
    state = five(given_samples)
    before = answers(state)
    some = np.flatnonzero(state.reference != ABSENT)
    histogram.move(state, some, state.reference[some].astype(np.int64) + 3)
    strong = (state.cells.max(axis=1) >= 1e-6) | (state.reference == ABSENT)
    assert (answers(state)[strong] == before[strong]).all()


@settings(deadline=None)
@given(samples, st.permutations(range(5)))
def test_rows_do_not_touch_each_other(
    given_samples: list[tuple[int, float, int]], order: list[int]
) -> None:
    moved = five([(order[row], value, after) for row, value, after in given_samples])
    assert (answers(moved)[order] == answers(five(given_samples))).all()


@given(samples)
def test_percentiles_grow_with_the_fraction_and_stay_in_the_table(
    given_samples: list[tuple[int, float, int]],
) -> None:
    values = answers(five(given_samples), (0.0, 0.1, 0.5, 0.9, 0.98, 1.0))
    assert (np.diff(values, axis=1) >= 0).all()
    assert (values >= 0).all()
    assert (values <= TENS.buckets.starts[-1]).all()


@given(samples, st.floats(0, 12))
def test_a_larger_sample_never_lowers_a_percentile(
    given_samples: list[tuple[int, float, int]], value: float
) -> None:
    low, high = five(given_samples), five(given_samples)
    put(low, 0, value, START_MS + 201 * HOUR_MS)
    put(high, 0, value + 1, START_MS + 201 * HOUR_MS)
    assert (answers(high) >= answers(low)).all()


def test_what_was_added_can_be_taken_back() -> None:
    state = histogram.empty(TENS, 1, np.float64)
    put(state, 0, 4.0, START_MS, 2.0)
    histogram.subtract(TENS, state, rows_of(0), rows_of(4), START_MS, 2.0)
    assert answers(state).tolist() == [[0.0] * 4]
    assert state.total[0] == 0


@given(samples, samples)
def test_merging_is_adding_all(
    left: list[tuple[int, float, int]], right: list[tuple[int, float, int]]
) -> None:
    both, other = five(left), five(right)
    histogram.merge(both, other)
    together = five(left + right)
    reference = np.maximum(both.reference, together.reference).astype(np.int64)
    for one in (both, together):
        histogram.move(one, np.arange(5), reference)
    assert both.cells == pytest.approx(together.cells, rel=1e-9)


def test_the_cell_type_changes_rounding_only() -> None:
    wide, narrow = (histogram.empty(TENS, 50, cell) for cell in (np.float64, np.float32))
    values = np.arange(50 * 300).reshape(300, 50) * 7 % 97 / 8
    for minute in range(300):
        places = find(TENS.buckets, values[minute])
        for state in (wide, narrow):
            histogram.add(TENS, state, np.arange(50), places, START_MS + minute * 60_000)
    assert narrow.cells.dtype == np.float32
    assert narrow.cells == pytest.approx(wide.cells, rel=1e-5)
    assert (answers(narrow) == answers(wide)).mean() > 0.99
