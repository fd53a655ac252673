"""Mid: what prod gives back by prediction, or a fixed share."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agents.lending import mid
from agents.table import Ints
from tests.agents.lending.strategies import PERCENT, pairs


def lent(rows: list[Ints], percent: int = 0, threshold: int = 100) -> Ints:
    capacity, usage, reclaimable, system, reserved, allocated = rows
    idle = mid.unallocated(capacity, system, reserved, allocated)
    amount = mid.predicted(capacity, usage, reclaimable, idle, percent)
    return mid.bounded(amount, capacity, threshold)


def row(milli: int, size: int = 0) -> Ints:
    return np.array([[milli, size]])


ROWS = st.integers(1, 4).flatmap(lambda n: st.tuples(*[pairs(n)] * 6).map(list))


@given(ROWS, PERCENT, PERCENT)
def test_never_negative_never_above_its_threshold(
    rows: list[Ints], percent: int, threshold: int
) -> None:
    amount = lent(rows, percent, threshold)
    assert (amount >= 0).all()
    assert (amount * 100 <= rows[0] * threshold).all()


@given(ROWS, PERCENT, st.integers(0, 5), st.integers(0, 10**12))
def test_more_use_less_prediction_never_lend_more(
    rows: list[Ints], percent: int, which: int, more: int
) -> None:
    before = lent(rows, percent)
    if which in {0, 2}:
        changed = [np.maximum(r - more, 0) if i == which else r for i, r in enumerate(rows)]
    else:
        changed = [r + more if i == which else r for i, r in enumerate(rows)]
    if which == 0:
        assert (lent(changed, percent) <= np.maximum(before, changed[0])).all()
    else:
        assert (lent(changed, percent) <= before).all()


@given(ROWS, PERCENT)
def test_permuting_nodes_permutes_amounts(rows: list[Ints], percent: int) -> None:
    turned = lent([r[::-1] for r in rows], percent)
    assert turned.tolist() == lent(rows, percent)[::-1].tolist()
    assert turned.tobytes() == lent([r[::-1] for r in rows], percent).tobytes()


def test_the_smaller_of_prediction_and_idle_and_a_share_of_what_nobody_asked_for() -> None:
    nothing = row(0)
    rows = [row(10_000, 100), row(4000, 90), row(3000, 50), row(500), row(800), row(6000)]
    assert lent(rows).tolist() == [[3000, 10]]
    assert lent(rows, 50).tolist() == [[3000 + (10_000 - 800 - 6000) // 2, 10 + 50]]
    assert lent(rows, 50, 40).tolist() == [[4000, 40]]
    unknown = [rows[0], row(4000, -1), *rows[2:]]
    assert lent(unknown).tolist() == nothing.tolist()


@given(st.integers(0, 2**50), PERCENT)
def test_a_fixed_share_is_the_peers_float(capacity: int, percent: int) -> None:
    (share,) = mid.fixed(np.array([capacity]), percent).tolist()
    assert share == int(float(capacity) * (percent / 100))
