"""The reservations that `make bench NAME=reservations` compares, each as a function of the past.

Usage is [entities, steps] in hundredths of a percent of the request, five minutes a step, MISSING
where there is no value. Step t's reservation comes from the steps before it; where that is less
than six hours, the whole request stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agents.prediction import fleet, histogram, peak, short_term
from agents.prediction.buckets import find
from agents.prediction.histogram import Kind
from agents.table import ABSENT, Array, Ints

WHOLE = 10_000
MISSING = -1
STEP_MS = 300_000
HOUR = 12
DAY = 24 * HOUR
LEAST = 6 * HOUR
HALF_DAY_MS = 43_200_000
OUR_HALF_LIFE_MS = 3 * HALF_DAY_MS
EPSILON = 0.0001
SIZES = {"cpu": 4_000, "memory": 8 << 30}
"""Request of a traced entity, in millicores and bytes: only the first bucket's width notices."""


def of_window(usage: Ints) -> tuple[Ints, Ints]:
    """Policies a and b: the maximum of the last 24 h, and their p95 x 1.1."""
    largest, ranked = np.full_like(usage, WHOLE), np.full_like(usage, WHOLE)
    gaps = bool((usage == MISSING).any())
    seen = np.where(usage == MISSING, np.nan, usage)
    for t in range(LEAST, usage.shape[1]):
        window = seen[:, max(t - DAY, 0) : t]
        if not gaps:
            largest[:, t] = window.max(axis=1)
            ranked[:, t] = np.ceil(np.percentile(window, 95, axis=1) * 1.1)
            continue
        enough = np.flatnonzero((~np.isnan(window)).sum(axis=1) >= LEAST)
        largest[enough, t] = np.nanmax(window[enough], axis=1)
        ranked[enough, t] = np.ceil(np.nanpercentile(window[enough], 95, axis=1) * 1.1)
    return np.minimum(largest, WHOLE), np.minimum(ranked, WHOLE)


def of_peer(usage: Ints, resource: str) -> Ints:
    """The peer's predictor: p95 (memory p98) of a decaying histogram and 10 %, cold for a day."""
    buckets = fleet.CPU_BUCKETS if resource == "cpu" else fleet.MEMORY_BUCKETS
    half_life_ms = HALF_DAY_MS if resource == "cpu" else 2 * HALF_DAY_MS
    kind = Kind(buckets, half_life_ms, EPSILON)
    fractions = (0.95,) if resource == "cpu" else (0.98,)
    size, rows = SIZES[resource], np.arange(len(usage))
    state = histogram.empty(kind, len(usage), np.float32)
    result = np.full_like(usage, WHOLE)
    for t in range(usage.shape[1]):
        if t > DAY:
            said = histogram.percentiles(kind, state, rows, fractions)[:, 0].astype(np.int64)
            result[:, t] = in_hundredths(peak.with_margin(said, 10), size)
        _train(kind, state, usage[:, t], size, t)
    return result


def of_price(
    usage: Ints, resource: str, worth: short_term.Worth, prices: Sequence[float], recent: int
) -> list[Ints]:
    """Ours, one answer a price; ``recent`` is how many of the last steps have their own share."""
    buckets = fleet.CPU_BUCKETS if resource == "cpu" else fleet.MEMORY_BUCKETS
    kind = Kind(buckets, OUR_HALF_LIFE_MS, EPSILON)
    size, rows = SIZES[resource], np.arange(len(usage))
    state = histogram.empty(kind, len(usage), np.float32)
    result = [np.full_like(usage, WHOLE) for _ in prices]
    for t in range(usage.shape[1]):
        if t >= LEAST:
            last = usage[:, t - recent : t]
            amounts = np.where(last == MISSING, ABSENT, last * size // WHOLE)
            odds = short_term.odds(kind, state, rows, amounts, worth)
            for answer, price in zip(result, prices, strict=True):
                answer[:, t] = in_hundredths(short_term.cheapest(odds, price), size)
        _train(kind, state, usage[:, t], size, t)
    return result


def in_hundredths(amounts: Array, size: int) -> Ints:
    """Of the request, rounded up and cut at the whole; the whole where nothing is known."""
    share = np.ceil(amounts * (WHOLE / size)).astype(np.int64)
    result: Ints = np.where(amounts == ABSENT, WHOLE, np.minimum(share, WHOLE))
    return result


def _train(kind: Kind, state: histogram.Histograms, usage: Ints, size: int, t: int) -> None:
    rows = np.flatnonzero(usage != MISSING)
    places = find(kind.buckets, usage[rows] * (size / WHOLE))
    histogram.add(kind, state, rows, places, t * STEP_MS)
