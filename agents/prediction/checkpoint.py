"""The form in which the peer stores a histogram: whole weights up to 10000 and the true total.

Conformance calls it, and so does an import of the peer's models. It loses what is small, so our own
images keep the cells instead. Formula: koordinator `pkg/util/histogram/histogram.go`.
"""

from __future__ import annotations

import numpy as np

from agents.table import Array, Ints

LARGEST = 10_000
"""What the largest bucket is scaled to."""
HALF = 0.5
"""Added before the floor: halves go up."""


def save(cells: Array, epsilon: float) -> Ints:
    """[n, buckets] whole weights from cells.

    0 outside the lowest and highest bucket of epsilon or more, and where a weight is below 1 in
    20,000 of the row's largest.
    """
    filled = cells >= epsilon
    some = filled.any(axis=1, keepdims=True)
    index = np.arange(cells.shape[1])
    lowest = filled.argmax(axis=1)[:, None]
    highest = cells.shape[1] - 1 - filled[:, ::-1].argmax(axis=1)[:, None]
    inside = some & (index >= lowest) & (index <= highest)
    largest = np.where(some, cells.max(axis=1, keepdims=True), 1).astype(np.float64)
    scaled = np.floor(cells * (LARGEST / largest) + HALF)
    return np.where(inside, scaled, 0).astype(np.int64)


def load(buckets: Ints, weights: Ints, total: float, count: int) -> Array | None:
    """[count] float64 cells from stored buckets and weights; None if they cannot be a histogram.

    Refused are a negative total and a bucket below 0 or from ``count`` on.
    """
    if total < 0 or ((buckets < 0) | (buckets >= count)).any():
        return None
    cells = np.zeros(count)
    whole = int(np.add.reduce(weights, dtype=np.int64))
    if whole:
        cells[buckets] = weights * (total / whole)
    return cells
