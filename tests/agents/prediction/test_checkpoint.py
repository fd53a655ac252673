"""The stored form: what it keeps, what it drops, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agents.prediction import checkpoint

COUNT = 11


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_the_largest_is_ten_thousand_and_halves_go_up() -> None:
    cells = np.zeros((2, COUNT))
    cells[0, [2, 5, 7]] = 20_000.0, 1.0, 0.9
    weights = checkpoint.save(cells, 0.001)
    assert weights[0, [2, 5, 7]].tolist() == [10_000, 1, 0]
    assert not weights[1].any()


@pytest.mark.parametrize(
    ("place", "total"), [(-1, 1.0), (COUNT, 1.0), (0, -0.5)], ids=["below", "beyond", "negative"]
)
def test_what_cannot_be_a_histogram_is_refused(place: int, total: float) -> None:
    assert checkpoint.load(ints(place), ints(1), total, COUNT) is None


def test_nothing_stored_is_an_empty_histogram() -> None:
    cells = checkpoint.load(ints(), ints(), 0.0, COUNT)
    assert cells is not None
    assert not cells.any()


@given(arrays(np.float64, (3, COUNT), elements=st.floats(0.5, 1000)))
def test_what_is_loaded_is_what_was_saved_within_its_resolution(cells: np.ndarray) -> None:
    weights = checkpoint.save(cells, 0.001)
    for row, stored in enumerate(weights):
        places = np.flatnonzero(stored)
        total = float(cells[row].sum())
        again = checkpoint.load(places, stored[places], total, COUNT)
        assert again is not None
        assert again == pytest.approx(cells[row], abs=cells[row].max() / 1000, rel=0.01)
        assert again.sum() == pytest.approx(total)
