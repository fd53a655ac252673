"""Counts over a constant table of log-spaced buckets, with median and MAD in integers.

`agents.interference` keeps six of them for each pod and signal. No logarithm is taken at run time.
"""

from __future__ import annotations

import functools

import numpy as np

from agents.table import Array, Ints

BUCKETS = 48
"""A compromise: 576 bytes a pod, and steps of a fifth."""
FIRST_EDGE = 1000
"""us per s: what lies below a thousandth of the time is one bucket, for its noise means nothing."""
GROWTH_UP, GROWTH_DOWN = 11, 9
"""Each edge is 11/9 of the one before: 1000 to ten million in 46 steps."""


def _edges() -> Ints:
    edges = [0, FIRST_EDGE]
    while len(edges) < BUCKETS:
        edges.append(edges[-1] * GROWTH_UP // GROWTH_DOWN)
    return np.array(edges, dtype=np.int64)


EDGES = _edges()
"""Lower edges; the last bucket has no upper one."""
_UPPER = np.append(EDGES[1:], EDGES[-1] * GROWTH_UP // GROWTH_DOWN)
WIDTHS: Ints = _UPPER - EDGES
CENTRES: Ints = (EDGES + _UPPER) // 2


@functools.cache
def _by_distance() -> tuple[Ints, Ints]:
    """Distances between buckets, and for each bucket all by distance: a median becomes a cumsum.

    Made when first asked for: a node's own law never asks, and its memory is counted.
    """
    distance = np.abs(CENTRES[:, None] - CENTRES[None, :])
    return distance, np.argsort(distance, axis=1, kind="stable")


def bucket_of(values: Ints) -> Ints:
    """The bucket of each value, which is 0 or more."""
    return np.searchsorted(EDGES, values, side="right") - 1


def median_and_mad(counts: Array) -> tuple[Ints, Ints]:
    """Median and median absolute deviation of histograms [n, BUCKETS], each with a count.

    Both are taken from bucket centres; the deviation is at least the width of the median's bucket.
    """
    distance, by_distance = _by_distance()
    half = (np.add.reduce(counts, axis=1, dtype=np.int64) + 1) // 2
    middle = _first_reaching(counts, half)
    nearest = by_distance.take(middle, axis=0)
    place = _first_reaching(np.take_along_axis(counts, nearest, axis=1), half)
    furthest = np.take_along_axis(nearest, place[:, None], axis=1)[:, 0]
    return CENTRES.take(middle), np.maximum(distance[middle, furthest], WIDTHS.take(middle))


def _first_reaching(counts: Array, wanted: Ints) -> Ints:
    reached = np.cumsum(counts, axis=1, dtype=np.int32) >= wanted[:, None]
    result: Ints = reached.argmax(axis=1)
    return result
