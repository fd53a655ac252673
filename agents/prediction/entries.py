"""The buckets of many histograms that hold anything, moved together: dense rows become short ones.

`agents.prediction.histogram` walks percentiles over them, `agents.prediction.short_term` weighs
levels. A row has some tens of its hundreds of buckets filled, and what is empty adds nothing to a
running sum, so the sums are the same to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.table import Array, Bools, Ints


@dataclass(frozen=True, slots=True)
class Entries:
    """Filled buckets [e] of n rows, by row and bucket."""

    flat: Ints  # row x buckets + bucket, ascending
    row: Ints
    place: Ints  # how many of its row come before
    shape: tuple[int, int]  # rows, the most entries of a row (at least 1)
    cells: int  # rows x buckets

    @classmethod
    def of(cls, mask: Bools) -> Entries:
        """Those of a mask [n, buckets]."""
        rows, buckets = mask.shape
        flat = np.flatnonzero(mask)
        row = flat // buckets
        count = np.bincount(row, minlength=rows)
        place = np.arange(len(flat)) - (np.cumsum(count) - count).take(row)
        return cls(flat, row, place, (rows, max(int(count.max(initial=0)), 1)), mask.size)

    def index(self) -> Array:
        """[cells] where each filled cell is among the entries; of the others nothing is said."""
        result = np.empty(self.cells, dtype=np.int32)
        result[self.flat] = np.arange(len(self.flat), dtype=np.int32)
        return result

    def spread(self, values: Array, fill: float) -> Array:
        """[n, most] of ``values`` [e], each row's from the left, ``fill`` behind them."""
        result = np.full(self.shape, fill, dtype=values.dtype)
        result[self.row, self.place] = values
        return result
