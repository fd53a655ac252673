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
from agents.prediction.histogram import Histograms, Kind
from agents.table import ABSENT, Array, Bools, Ints


@dataclass(frozen=True, slots=True)
class Worth:
    """What weighs how much."""

    price: float  # of a step above the reservation, in steps of reserving the own peak
    recent_share: float  # of the last few peaks together, within all
    peak_fraction: float  # the own peak is this percentile
    higher_share: float  # of the past that is expected one bucket higher when it comes again


@dataclass(frozen=True, slots=True)
class Odds:
    """What the past says of n rows, before any price."""

    above: Array  # [n, buckets] float64: share of the past above each bucket's answer
    peak: Array  # [n] the own peak
    known: Bools  # [n] False: no past at all


def odds(
    kind: Kind, histograms: Histograms, rows: Ints, recent: Array, worth: Worth
) -> Odds:  # fmt: skip
    """From histograms of peaks and the last few of them [rows, k], ABSENT where there was none."""
    total = histograms.total.take(rows).astype(np.float64)
    trained = total > 0
    share = np.where(trained, 1 - worth.recent_share, 0)
    shares = histograms.cells.take(rows, axis=0) * (share / np.where(trained, total, 1))[:, None]
    seen = recent != ABSENT
    count = np.add.reduce(seen, axis=1, dtype=np.int64)
    each = worth.recent_share / np.maximum(count, 1)
    places = find(kind.buckets, recent.astype(np.float64))
    every = np.arange(len(rows))
    for column in range(recent.shape[1]):
        shares[every, places[:, column]] += np.where(seen[:, column], each, 0)
    running = shares.cumsum(axis=1)
    whole = running[:, -1:]
    reached: Array = running >= whole * worth.peak_fraction
    peak = kind.buckets.answers.take(reached.argmax(axis=1))
    shares[:, -1] = 0  # nothing lies above the last bucket
    above = whole - running + shares * worth.higher_share
    return Odds(above / np.where(whole > 0, whole, 1), peak, trained | (count > 0))


def cheapest(kind: Kind, given: Odds, price: float) -> Array:
    """[n] float64: the level with the least cost, of equals the highest; ABSENT without a past."""
    cost = kind.buckets.answers + (price * given.peak)[:, None] * given.above
    place = cost.shape[1] - 1 - cost[:, ::-1].argmin(axis=1)
    return np.where(given.known, kind.buckets.answers.take(place), ABSENT)


def reserve(
    kind: Kind, histograms: Histograms, rows: Ints, recent: Array, worth: Worth
) -> Ints:  # fmt: skip
    """[rows] whole units to reserve, ABSENT where nothing is known: then the request stands."""
    levels = cheapest(kind, odds(kind, histograms, rows, recent, worth), worth.price)
    return levels.astype(np.int64)
