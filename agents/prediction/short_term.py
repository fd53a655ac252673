"""The short-term reservation that is worth its price, from an entity's own past peaks.

`agents.predict` asks for each pod once a minute, where the policy says so; so does `make bench
NAME=reservations`.
Reserving the maximum of a day pays a whole day for each single spike. Here every level has a cost:
what it reserves, and how often the past went above it times what that costs; the cheapest is taken.
So an entity with rare, high spikes is not reserved up to them, and one whose peaks lie close
together gets a margin, because a part of the past is expected a bucket higher when it comes again.
The price is a multiple of the entity's own peak: nothing depends on units, requests or limits. The
past is a decaying histogram of peaks, and the last few of them have a share of their own, because
usage that just rose stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.prediction.buckets import find
from agents.prediction.entries import Entries
from agents.prediction.histogram import BLOCK, Histograms, Kind
from agents.table import ABSENT, Array, Bools, Ints

NO_BUCKET = 1 << 16
"""Beyond every bucket of any scheme."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What weighs how much."""

    price: float  # of a step above the reservation, in steps of reserving the own peak
    recent_share: float  # of the last few peaks together, within all
    peak_fraction: float  # the own peak is this percentile
    higher_share: float  # of the past that is expected one bucket higher when it comes again


@dataclass(frozen=True, slots=True)
class Odds:
    """What the past says of n rows, before any price: the levels of which one can be the cheapest.

    These are buckets that the past reached, the one above each of them, and the first: between them
    a level only costs more. ``level`` is infinite where there is none; ``above`` is the share of
    the past above a level.
    """

    reached: tuple[Array, Array]  # (level, above) [n, k] each, ascending
    following: tuple[Array, Array]  # the same of the next buckets
    first: Array  # [n] level; all the past is above it
    peak: Array  # [n] the own peak
    known: Bools  # [n] False: no past at all


def odds(
    kind: Kind, histograms: Histograms, rows: Ints, recent: Array, worth: Worth
) -> Odds:  # fmt: skip
    """From histograms of peaks and the last few of them [rows, k], ABSENT where there was none."""
    cells = histograms.cells.take(rows, axis=0)
    total = histograms.total.take(rows).astype(np.float64)
    trained, seen = total > 0, recent != ABSENT
    places = find(kind.buckets, recent.astype(np.float64))
    places += (np.arange(len(rows)) * kind.buckets.count)[:, None]
    mask = cells != 0
    mask.reshape(-1)[places[seen]] = True
    found = Entries.of(mask)
    scale = np.where(trained, 1 - worth.recent_share, 0) / np.where(trained, total, 1)
    shares = cells.reshape(-1).take(found.flat) * scale.take(found.row)
    count = np.add.reduce(seen, axis=1, dtype=np.int64)
    each = worth.recent_share / np.maximum(count, 1)
    np.add.at(shares, found.index().take(places[seen]), each.repeat(count))
    bucket = found.spread(found.flat - found.row * kind.buckets.count, NO_BUCKET)
    return _levels(kind, bucket, found.spread(shares, 0.0), trained | (count > 0), worth)


def _levels(kind: Kind, bucket: Ints, shares: Array, known: Bools, worth: Worth) -> Odds:
    """From the buckets that the past reached [n, k], ascending, and its share in each."""
    answers, last = kind.buckets.answers, kind.buckets.count - 1
    rows = np.arange(len(bucket))
    running = shares.cumsum(axis=1)
    whole = running[:, -1:]
    reached: Array = running >= whole * worth.peak_fraction
    peak = answers.take(bucket[rows, reached.argmax(axis=1)], mode="clip")
    beyond = whole - running
    here = beyond + np.where(bucket == last, 0, shares) * worth.higher_share  # nothing lies above
    following = np.full_like(bucket, NO_BUCKET)
    following[:, :-1] = bucket[:, 1:]
    free = bucket + 1 < np.minimum(following, last + 1)  # the next one is not one of them itself
    level = np.where(bucket <= last, answers.take(bucket, mode="clip"), np.inf)
    after = np.where(free, answers.take(bucket + 1, mode="clip"), np.inf)
    first = np.where(bucket[:, 0] > 0, answers[0], np.inf)
    scale = np.where(whole > 0, whole, 1)
    return Odds((level, here / scale), (after, beyond / scale), first, peak, known)


def cheapest(given: Odds, price: float) -> Array:
    """[n] float64: the level with the least cost, of equals the highest; ABSENT without a past."""
    miss = price * given.peak
    least, best = given.first + miss, given.first
    rows = np.arange(len(miss))
    for level, above in (given.reached, given.following):
        cost = level + miss[:, None] * above
        place = cost.shape[1] - 1 - cost[:, ::-1].argmin(axis=1)
        one, at = cost[rows, place], level[rows, place]
        better = (one < least) | ((one == least) & (at > best))
        least, best = np.where(better, one, least), np.where(better, at, best)
    return np.where(given.known, best, ABSENT)


def reserve(
    kind: Kind, histograms: Histograms, rows: Ints, recent: Array, worth: Worth
) -> Ints:  # fmt: skip
    """[rows] whole units to reserve, ABSENT where nothing is known: then the request stands."""
    levels = np.empty(len(rows))
    for begin in range(0, len(rows), BLOCK):
        block = slice(begin, begin + BLOCK)
        past = odds(kind, histograms, rows[block], recent[block], worth)
        levels[block] = cheapest(past, worth.price)
    return levels.astype(np.int64)
