"""A partition's models: cpu and memory histograms of every row, trained and asked a part at a time.

`agents.predict` calls `train` and `ask` for the rows whose moment it is: each once a minute, about
a sixtieth of them a second. Entities are rows of the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.prediction import histogram
from agents.prediction.buckets import exponential, find
from agents.prediction.histogram import Histograms, Kind
from agents.table import ABSENT, Array, Ints

CPU_BUCKETS = exponential(max_value=1_024_000.0, first=25.0, ratio=1.05)
"""Millicores: the peer's 1024 cores from 0.025 on, 158 buckets of 5 %."""
MEMORY_BUCKETS = exponential(max_value=float(1 << 41), first=float(5 << 20), ratio=1.05)
"""Bytes: the peer's 2 TiB from 5 MiB on, 205 buckets of 5 %."""
CELL = np.float32
"""A weight needs no more: a day's samples add up to 2^11 and 2^-24 of that is far below one."""
ROW_BYTES = (CPU_BUCKETS.count + MEMORY_BUCKETS.count + 2) * CELL().itemsize + 2 * 4
"""State of one row, both resources: cells, totals, references."""


@dataclass(frozen=True, slots=True)
class Models:
    """Cpu in millicores and memory in bytes, row by row."""

    kinds: tuple[Kind, Kind]
    state: tuple[Histograms, Histograms]


def models(rows: int, half_lives_ms: tuple[int, int], epsilon: float) -> Models:
    """``rows`` entities that never had a sample."""
    cpu = Kind(CPU_BUCKETS, half_lives_ms[0], epsilon)
    memory = Kind(MEMORY_BUCKETS, half_lives_ms[1], epsilon)
    kinds = (cpu, memory)
    return Models(kinds, (histogram.empty(cpu, rows, CELL), histogram.empty(memory, rows, CELL)))


def train(fleet: Models, rows: Ints, usage: Ints, t_ms: int) -> None:
    """One sample for each of ``rows``, all distinct: ``usage`` [rows, 2] millicores and bytes.

    A row that is ABSENT in either is left out.
    """
    known = (usage != ABSENT).all(axis=1)
    if not known.all():
        rows, usage = rows[known], usage[known]
    for column, (kind, state) in enumerate(zip(fleet.kinds, fleet.state, strict=True)):
        places = find(kind.buckets, usage[:, column].astype(np.float64))
        histogram.add(kind, state, rows, places, t_ms)


def ask(
    fleet: Models, rows: Ints, cpu: tuple[float, ...], memory: tuple[float, ...]
) -> tuple[Ints, Ints]:
    """Percentiles of ``rows`` in whole millicores [rows, cpu] and bytes [rows, memory].

    ABSENT in a row without a model.
    """
    return _whole(fleet, 0, rows, cpu), _whole(fleet, 1, rows, memory)


def _whole(fleet: Models, column: int, rows: Ints, fractions: tuple[float, ...]) -> Ints:
    state = fleet.state[column]
    values: Array = histogram.percentiles(fleet.kinds[column], state, rows, fractions)
    trained = state.reference.take(rows) != ABSENT
    return np.where(trained[:, None], values.astype(np.int64), ABSENT)
