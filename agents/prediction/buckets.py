"""Where histogram buckets begin, as tables made once from exact arithmetic.

`agents.prediction.histogram` finds buckets and answers percentiles with them. Formula: koordinator
`pkg/util/histogram/histogram_options.go`; its logarithm and power are not taken at run time, and
no search either: the leading bits of a float64 name a cell that holds at most one cut, which makes
finding seven times cheaper than a binary search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from agents.table import Array, Ints

MANTISSA_BITS = 52
"""Of a float64: what a cell leaves open at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Float64 tables of one scheme with n buckets, in the unit of the values they count."""

    starts: Array  # [n] lower edges
    answers: Array  # [n] what a percentile in that bucket says: its end; the last one's its start
    cuts: Array  # [n] least value of the next bucket; none beyond the last: infinite
    floor: float  # just below the first cut: all that is smaller is found like it
    shift: int  # how many trailing bits of a float64 a cell leaves open
    guesses: Ints  # [cells] bucket of each cell's lower edge, from the cell of ``floor`` on
    first_cell: int

    @property
    def count(self) -> int:
        return len(self.starts)


def linear(max_value: float, size: float) -> Buckets:
    """Buckets of one width: ceil(max / size) + 1 of them, the last without end."""
    count = math.ceil(max_value / size) + 1
    return _table(
        [float(i) * size for i in range(count)], [_least(i, size) for i in range(1, count)]
    )


def exponential(max_value: float, first: float, ratio: float) -> Buckets:
    """Each bucket ``ratio`` times as wide as the one before: start(i) = first (r^i - 1) / (r - 1).

    The count is the least k with r^k >= max (r - 1) / first + 1, and one more.
    """
    growth, width = Fraction(ratio), Fraction(first)
    end = Fraction(max_value)
    start, starts = Fraction(0), [0.0]
    while start < end:
        start += width
        width *= growth
        starts.append(float(start))  # exact ones grow to thousands of bits: only the last is kept
    return _table(starts, starts[1:])


def find(buckets: Buckets, values: Array) -> Ints:
    """The bucket of each float64 value; below 0 is the first, beyond the table the last."""
    seen = np.maximum(values, buckets.floor).view(np.int64)
    cells = (seen >> buckets.shift) - buckets.first_cell
    guess = buckets.guesses.take(np.minimum(cells, len(buckets.guesses) - 1))
    result: Ints = guess + (values >= buckets.cuts.take(guess))
    return result


def _least(i: int, size: float) -> float:
    """The least double whose quotient by ``size`` is i or more: trunc(v / size) turns there."""
    value = float(i) * size
    while value / size >= i:
        value = math.nextafter(value, -math.inf)
    while value / size < i:
        value = math.nextafter(value, math.inf)
    return value


def _table(starts: list[float], cuts: list[float]) -> Buckets:
    lower = np.array(starts, dtype=np.float64)
    upper = np.append(lower[1:], lower[-1])
    edges = np.array(cuts, dtype=np.float64)
    floor = math.nextafter(cuts[0], -math.inf)
    words = np.append(floor, edges).view(np.int64)
    shift = MANTISSA_BITS
    while (np.diff(words[1:] >> shift) == 0).any():
        shift -= 1
    first, last = (int(word) >> shift for word in (words[0], words[-1]))
    begins = (np.arange(first, last + 1) << shift).view(np.float64)
    guesses = edges.searchsorted(begins, side="right")
    ends = np.append(edges, math.inf)
    for table in (lower, upper, ends, guesses):
        table.setflags(write=False)
    return Buckets(lower, upper, ends, floor, shift, guesses, first)
