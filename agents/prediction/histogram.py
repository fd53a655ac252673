"""Decaying histograms side by side, one a row: add, subtract, move, merge, percentiles.

`agents.prediction.fleet` runs them over a partition's pods with float32 cells, conformance one at a
time with float64. Formula: koordinator `pkg/util/histogram`. All rows of a call share its time.
Elementwise arithmetic and one cumsum a row, so the bytes do not depend on how rows are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.prediction import decay
from agents.prediction.buckets import Buckets
from agents.prediction.entries import Entries
from agents.table import ABSENT, Array, Ints

FAR = 100
"""Half lives after which a reference moves: 2^100 times a day of samples still fits a float32."""

BLOCK = 512
"""Rows that are walked at once: their cells and sums stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What all rows have in common."""

    buckets: Buckets
    half_life_ms: int  # 0: no decay
    epsilon: float  # a bucket with less is as good as empty


@dataclass(slots=True)
class Histograms:
    """The state: n rows. A row that never had a sample has reference ABSENT."""

    cells: Array  # [n, buckets] float32 or float64, C order: weights, as seen from the reference
    total: Array  # [n] same type: their sum as it went, not what rounding makes of it
    reference: Array  # [n] int32: time of weight 1, in half lives since 1970

    def rows(self, rows: Ints) -> Histograms:
        """A copy of these rows."""
        return Histograms(
            self.cells.take(rows, axis=0), self.total.take(rows), self.reference.take(rows)
        )


def empty(kind: Kind, rows: int, cell: type[np.floating[Any]]) -> Histograms:
    """``rows`` histograms without a sample; ``cell`` is the type of their weights."""
    return Histograms(
        np.zeros((rows, kind.buckets.count), dtype=cell),
        np.zeros(rows, dtype=cell),
        np.full(rows, ABSENT, dtype=np.int32),
    )


def add(
    kind: Kind, histograms: Histograms, rows: Ints, buckets: Ints, t_ms: int, weight: float = 1.0
) -> None:
    """One sample for each of ``rows``, all distinct, into its bucket."""
    gain = _weigh(kind, histograms, rows, t_ms, weight)
    cells = histograms.cells.reshape(-1)
    places = rows * kind.buckets.count + buckets
    cells[places] = cells.take(places) + gain
    histograms.total[rows] = histograms.total.take(rows) + gain


def subtract(
    kind: Kind, histograms: Histograms, rows: Ints, buckets: Ints, t_ms: int, weight: float = 1.0
) -> None:
    """Take a sample back; what falls below epsilon is 0."""
    loss = _weigh(kind, histograms, rows, t_ms, weight)
    cells = histograms.cells.reshape(-1)
    places = rows * kind.buckets.count + buckets
    for holder, at in ((cells, places), (histograms.total, rows)):
        left = holder.take(at) - loss
        holder[at] = np.where(left < kind.epsilon, 0, left)


def move(histograms: Histograms, rows: Ints, reference: Ints) -> None:
    """Let these rows' weights be seen from new references [n] (half lives since 1970)."""
    before = histograms.reference.take(rows)
    shift = np.where(before == ABSENT, 0, before - reference).astype(np.int32)
    one = np.ones(len(rows), dtype=histograms.cells.dtype)
    factor = np.ldexp(one, shift)
    histograms.cells[rows] *= factor[:, None]
    histograms.total[rows] *= factor
    histograms.reference[rows] = reference


def merge(into: Histograms, other: Histograms) -> None:
    """Add ``other`` row by row; the older reference of two moves to the younger (of both)."""
    every = np.arange(len(into.total))
    younger = np.maximum(into.reference, other.reference)
    moved = other.rows(every)
    for one in (into, moved):
        move(one, every, younger)
    into.cells += moved.cells
    into.total += moved.total


def percentiles(
    kind: Kind, histograms: Histograms, rows: Ints, fractions: tuple[float, ...]
) -> Array:
    """[rows, fractions] float64: the end of the bucket where the running sum reaches the fraction.

    0 of an empty row. Fractions beyond 0..1 are those ends. Sums begin at the lowest bucket of
    epsilon or more and stop at the highest.
    """
    result = np.empty((len(rows), len(fractions)))
    for begin in range(0, len(rows), BLOCK):
        block = slice(begin, begin + BLOCK)
        result[block] = _walk(kind, histograms, rows[block], fractions)
    return result


def _walk(kind: Kind, histograms: Histograms, rows: Ints, fractions: tuple[float, ...]) -> Array:
    cells = histograms.cells.take(rows, axis=0)
    found = Entries.of(cells != 0)
    weight = found.spread(cells.reshape(-1).take(found.flat), 0)
    bucket = found.spread(found.flat - found.row * kind.buckets.count, 0)
    filled: Array = weight >= kind.epsilon
    every, last = np.arange(len(rows)), weight.shape[1] - 1
    lowest = filled.argmax(axis=1)
    highest = last - filled[:, ::-1].argmax(axis=1)
    some = filled[every, lowest]
    running = weight.cumsum(axis=1, dtype=cells.dtype)
    below = running[every, lowest] - weight[every, lowest]
    total = histograms.total.take(rows)
    result = np.empty((len(rows), len(fractions)))
    for column, fraction in enumerate(fractions):
        reached: Array = running >= (below + total * cells.dtype.type(fraction))[:, None]
        place = np.where(reached[:, last], reached.argmax(axis=1), last)
        place = np.minimum(np.maximum(place, lowest), highest)
        result[:, column] = np.where(some, kind.buckets.answers.take(bucket[every, place]), 0)
    return result


def _weigh(kind: Kind, histograms: Histograms, rows: Ints, t_ms: int, weight: float) -> Array:
    """The weight of a sample at ``t_ms`` for each row; moves references that are unset or far."""
    if not kind.half_life_ms:
        return np.full(len(rows), weight, dtype=histograms.cells.dtype)
    factor, whole = decay.split(t_ms, kind.half_life_ms)
    reference = histograms.reference.take(rows)
    # Later than FAR half lives after the reference: by a fraction is enough.
    late = whole - reference >= FAR + (factor == 1.0)
    stale = late | (reference == ABSENT)
    if stale.any():
        new = np.full(len(rows), decay.nearest(t_ms, kind.half_life_ms), dtype=np.int64)
        move(histograms, rows[stale], new[stale])
        reference = histograms.reference.take(rows)
    gain = np.ldexp(np.float64(factor * weight), (whole - reference).astype(np.int32))
    result: Array = gain.astype(histograms.cells.dtype)
    return result
