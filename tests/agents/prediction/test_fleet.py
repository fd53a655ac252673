"""A partition's models: one sample a minute, a part of the rows a second, the same bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.prediction import fleet
from agents.table import ABSENT, Array

MINUTE_MS = 60_000
START_MS = 1_700_000_000_000
HALF_LIVES_MS = (12 * 3_600_000, 24 * 3_600_000)
EPSILON = 0.0001
ROWS = 100


def usage(minute: int) -> Array:
    """Some millicores and bytes for each row, other ones each minute."""
    cpu = (np.arange(ROWS) * 37 + minute * 101) % 4000
    return np.stack([cpu, cpu << 20], axis=1)


def trained(cuts: tuple[int, ...]) -> fleet.Models:
    models = fleet.models(ROWS, HALF_LIVES_MS, EPSILON)
    for minute in range(20):
        for rows in np.split(np.arange(ROWS), cuts):
            fleet.train(models, rows, usage(minute)[rows], START_MS + minute * MINUTE_MS)
    return models


@settings(deadline=None)
@given(st.lists(st.integers(0, ROWS), max_size=6).map(sorted))
def test_cuts_leave_the_same_bytes(cuts: list[int]) -> None:
    for one, other in zip(trained(tuple(cuts)).state, trained(()).state, strict=True):
        assert one.cells.tobytes() == other.cells.tobytes()
        assert one.total.tobytes() == other.total.tobytes()
        assert one.reference.tobytes() == other.reference.tobytes()


def test_answers_are_whole_amounts_at_or_above_what_was_used() -> None:
    models = fleet.models(2, HALF_LIVES_MS, EPSILON)
    for minute in range(100):
        now = np.array([[500, 1 << 30], [ABSENT, 5]])
        fleet.train(models, np.arange(2), now, START_MS + minute * MINUTE_MS)
    cpu, memory = fleet.ask(models, np.arange(2), (0.6, 0.95), (0.98,))
    assert cpu.dtype == memory.dtype == np.int64
    assert ((cpu[0] > 500) & (cpu[0] < 550)).all()
    assert 1 << 30 < memory[0, 0] < (1 << 30) * 1.06
    assert (cpu[1] == ABSENT).all() and memory[1, 0] == ABSENT


def test_a_row_costs_what_is_said() -> None:
    models = fleet.models(10, HALF_LIVES_MS, EPSILON)
    held = sum(s.cells.nbytes + s.total.nbytes + s.reference.nbytes for s in models.state)
    assert held == 10 * fleet.ROW_BYTES == 14_680
